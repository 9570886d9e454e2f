#pragma once
// The `decoder` of tokenizer.json: tokens to text.
//
//   const TokenDecoder decoder = TokenDecoder::read(json["decoder"]);
//   decoder.decode({"▁to", "▁be"});   // "to be"

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/formats/json.h"

namespace quintet::data {

class TokenDecoder {
 public:
  /// T5's: spaces for `▁`, but none before the first token.
  static TokenDecoder metaspace(const std::string& mark = "\u2581", bool drops_first = true);
  /// Of the kinds Sequence, Metaspace, Replace of a text, ByteFallback, Fuse and Strip; null: spaces
  /// between tokens. Throws kData naming the field for another.
  static TokenDecoder read(const Json& json);

  std::string decode(std::vector<std::string> tokens) const;
  /// What one more token adds, whatever follows; none: that depends on the others.
  std::optional<std::string> decode_one(const std::string& token, bool first) const;

 private:
  using Tokens = std::vector<std::string>;
  static TokenDecoder read_metaspace(const Json& json);
  static std::function<void(Tokens&)> read_step(const Json& json);

  std::vector<std::function<void(Tokens&)>> steps_;
  std::optional<std::pair<std::string, bool>> metaspace_;  // mark, drops_first: the only step
  bool spaces_between_ = false;
};

}  // namespace quintet::data
