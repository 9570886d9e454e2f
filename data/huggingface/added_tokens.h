#pragma once
// Tokens that are found in text before it is normalized or split: "<extra_id_0>", "</s>" and a user's own.
//
//   AddedTokens tokens(model.size());
//   tokens.add({.content = "<extra_id_0>", .special = true}, model.find("<extra_id_0>"));
//   tokens.find("</s>");   // its id
//
// Source: huggingface/tokenizers, tokenizer/added_vocabulary.rs.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/huggingface/characters.h"
#include "runtime/base/formats/json.h"

namespace quintet::data {

struct AddedToken {
  std::string content;
  bool special = false, normalized = false;  // normalized: looked for in normalized text
  bool lstrip = false, rstrip = false;       // takes the white space before, after it
  bool single_word = false;                  // only between characters that are none of words
  /// As tokenizer.json and tokenizer_config.json write one: a text or an object.
  static AddedToken read(const Json& json, bool special);
};

/// A part of a text: a token, or text between them.
struct TokenOrText {
  std::optional<int32_t> id;
  std::string_view text;
};

/// Finds tokens, the leftmost first and there the longest.
class TokenFinder {
 public:
  explicit TokenFinder(Spaces spaces = Spaces::rust) : spaces_(spaces) {}
  void add(std::string text, const AddedToken& token, int32_t id);
  std::vector<TokenOrText> split(std::string_view text) const;

 private:
  struct Entry {
    std::string text;
    AddedToken token;
    int32_t id;
  };
  const Entry* longest_at(std::string_view text) const;
  Spaces spaces_;
  std::map<char, std::vector<Entry>> entries_;  // by first byte; the longest first
};

/// By id and by content; one that is added again has the new flags.
class AddedTokens {
 public:
  explicit AddedTokens(int32_t model_size) : model_size_(model_size) {}
  /// `model_id`: of the piece of this text, if there is one; else the token gets the next free id.
  void add(AddedToken token, std::optional<int32_t> model_id);
  const std::map<int32_t, AddedToken>& by_id() const { return by_id_; }
  std::optional<int32_t> find(const std::string& content) const;

 private:
  int32_t model_size_;
  std::map<int32_t, AddedToken> by_id_;
  std::map<std::string, int32_t> ids_;
};

}  // namespace quintet::data
