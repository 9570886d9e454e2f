#pragma once
// Text of tokens that arrive one by one: only what later tokens cannot change, and nothing from a
// stop string on, wherever the borders between tokens fall. A token costs what its own text does,
// however long the text before it. A copy goes on by itself.
//
//   TextStream stream(vocabulary, {"\n\n"});
//   show(stream.push(token));                       // for each token
//   if (stream.stopped()) end_generation();
//   show(stream.finish());                          // what was held back

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/vocabularies/vocabulary.h"

namespace quintet::data {

/// Finds stop strings in text that comes in pieces, looking at each byte once.
class StopMatcher {
 public:
  /// Throws a usage error for an empty stop string.
  explicit StopMatcher(std::vector<std::string> stops);

  /// Reads on. How many bytes before the end of `text` the first of the stop strings begins that
  /// end in it; none if none does.
  std::optional<size_t> read(std::string_view text);
  /// Length of the longest end of what was read that begins a stop string without being all of it.
  size_t begun() const;

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> fallback;  // [i]: length of the longest end of text[0, i] that begins it
    size_t matched = 0;
  };
  std::vector<Stop> stops_;
};

class TextStream {
 public:
  /// Throws a usage error for an empty stop string.
  explicit TextStream(VocabularyPtr vocabulary, std::vector<std::string> stops = {});

  /// The text that is new and certain: whole characters that no stop string may begin with. Empty
  /// after a stop string.
  std::string push(int32_t token);
  /// The rest, once no token follows.
  std::string finish();
  /// Whether a stop string was met.
  bool stopped() const { return stopped_; }
  /// All text so far, certain or not, before the stop string: what decode() says of the tokens.
  const std::string& text() const { return text_; }

 private:
  void read_on(size_t from);
  std::string take(size_t end);
  VocabularyPtr vocabulary_;
  StopMatcher stops_;
  DecodeState state_;
  std::string text_;
  size_t certain_ = 0, shown_ = 0;  // bytes of text_
  bool stopped_ = false;
};

/// The text of all tokens, up to a stop string.
std::string decode_until(const VocabularyPtr& vocabulary, std::span<const int32_t> tokens,
                         const std::vector<std::string>& stops);

/// Told a sequence's tokens one by one, says whether its text has come to a stop string; a copy
/// goes on by itself. Empty if there are no stop strings.
std::function<bool(int32_t)> stop_check(const VocabularyPtr& vocabulary,
                                        const std::vector<std::string>& stops);

}  // namespace quintet::data
