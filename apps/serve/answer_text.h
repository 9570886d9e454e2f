#pragma once
// The JSON of answers, written as text: lists with an entry a token would take ten times as much
// memory as a tree of values, and longer.
//
//   LogprobsText logprobs(vocabulary);
//   for (const TokenChoice& token : tokens) logprobs.add(token, offset);
//   out += "\"logprobs\":";
//   logprobs.write(out);

#include <string>
#include <string_view>

#include "data/vocabularies/vocabulary.h"
#include "models/decoding/search/token_choice.h"

namespace quintet::serve {

/// A JSON string; bytes that are not UTF-8 become U+FFFD.
void write_string(std::string& out, std::string_view text);
/// A JSON number, null for what is none (infinity).
void write_number(std::string& out, double value);

/// Log probabilities of tokens as OpenAI's completions list them, or its chat completions.
class LogprobsText {
 public:
  LogprobsText(const data::Vocabulary& vocabulary, bool chat)
      : vocabulary_(vocabulary), chat_(chat) {}
  /// `offset`: bytes of the answer's text before the token.
  void add(const decoding::TokenChoice& token, size_t offset);
  void write(std::string& out) const;

 private:
  void add_to_chat(const decoding::TokenChoice& token);
  const data::Vocabulary& vocabulary_;
  const bool chat_;
  std::string tokens_, log_probs_, top_, offsets_;
};

/// [{"id": 5, "logprob": -0.5}, ...]
void write_top(std::string& out, const std::vector<decoding::TokenLogProb>& top);

/// Text of one token by itself; "token_id:5" for one without.
std::string piece_text(const data::Vocabulary& vocabulary, int32_t token);

}  // namespace quintet::serve
