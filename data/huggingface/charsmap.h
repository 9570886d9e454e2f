#pragma once
// The precompiled character map of SentencePiece's normalizer, used as the tokenizers library uses it:
// grapheme by grapheme, where SentencePiece takes the longest prefix.
//
//   const Charsmap map(bytes, "tokenizer.json:normalizer");
//   map.normalize("ﬁ");   // "fi"
//
// Source: huggingface/tokenizers, crate spm_precompiled; SentencePiece, normalizer.cc (the format).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::data {

class Charsmap {
 public:
  /// `bytes`: size of a double-array trie, the trie, replacements that end with a zero byte. Throws
  /// kData naming `where` for sizes that do not fit.
  Charsmap(std::string_view bytes, const std::string& where);
  /// Of UTF-8 text.
  std::string normalize(std::string_view text) const;

 private:
  /// What the shortest key that begins `text` becomes; none: no key does.
  std::optional<std::string_view> replacement(std::string_view text) const;
  void append_grapheme(std::string_view grapheme, std::string& out) const;

  std::vector<uint32_t> trie_;
  std::string replacements_;
};

}  // namespace quintet::data
