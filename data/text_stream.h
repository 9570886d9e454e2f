#pragma once
// Text of tokens that arrive one by one: only what later tokens cannot change, and nothing from a
// stop string on, wherever the borders between tokens fall.
//
//   TextStream stream(vocabulary, {"\n\n"});
//   show(stream.push(token));                       // for each token
//   if (stream.stopped()) end_generation();
//   show(stream.finish());                          // what was held back

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/vocabulary.h"

namespace quintet::data {

/// Where the first stop string begins in text from `from` on; npos if none does.
size_t find_stop(std::string_view text, std::span<const std::string> stops, size_t from = 0);

class TextStream {
 public:
  /// Throws a usage error for an empty stop string.
  TextStream(VocabularyPtr vocabulary, std::vector<std::string> stops);

  /// The text that is new and certain: whole characters that no stop string may begin with. Empty
  /// after a stop string.
  std::string push(int32_t token);
  /// The rest, once no token follows.
  std::string finish();
  /// Whether a stop string was met.
  bool stopped() const { return stopped_; }
  /// All text so far, certain or not, before the stop string.
  const std::string& text() const { return text_; }

 private:
  std::string take(size_t end);
  VocabularyPtr vocabulary_;
  std::vector<std::string> stops_;
  Tokens tokens_;
  std::string text_;
  size_t shown_ = 0;  // bytes of text_
  bool stopped_ = false;
};

}  // namespace quintet::data
