#pragma once
// What a request forbids, forces or favours among the next tokens, before any is chosen: the
// logits processors of transformers' generate, in its order, on one row given its history.
//
//   const LogitRules rules{.repetition_penalty = 1.2f, .no_repeat_ngram_size = 3};
//   if (!rules.empty()) rules.apply(row, {.tokens = so_far, .prompt_length = 1, .inputs = input});
//
// Greedy search and sampling apply them to logits, beam search to log probabilities: that is where
// transformers does, and it changes what a penalty means. Lengths count generated tokens: neither
// the start token nor a prompt. Source: transformers 5 generation/logits_process.py.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace quintet::decoding {

using TokenList = std::vector<int32_t>;

struct History {
  std::span<const int32_t> tokens;  // start token, prompt, then what was generated
  int64_t prompt_length = 1;        // of them, how many were given
  std::span<const int32_t> inputs;  // of the encoder, padding too

  int64_t generated() const { return static_cast<int64_t>(tokens.size()) - prompt_length; }
};

struct LogitRules {
  TokenList eos_ids{1};        // for the rules about the end
  int64_t max_new_tokens = 0;  // where forced_eos acts; 0: nowhere

  std::vector<std::pair<TokenList, float>> sequence_bias =
      {};                                    // added where its last token is next
  float encoder_repetition_penalty = 1;      // above 1 favours the inputs' tokens
  float repetition_penalty = 1;              // above 1 disfavours what the history holds
  int64_t no_repeat_ngram_size = 0;          // no n tokens twice in the history
  int64_t encoder_no_repeat_ngram_size = 0;  // no n tokens of the inputs
  std::vector<TokenList> bad_words = {};     // never written; a single end token is left alone
  int64_t min_new_tokens = 0;                // no end token before
  TokenList prefix = {};                     // the first generated tokens (forced_bos: one)
  bool forced_eos = false;                   // the last of max_new_tokens is eos_ids
  /// From so many generated tokens on, an end token gains |its logit| (factor ^ beyond - 1).
  std::pair<int64_t, float> decay_length_penalty = {0, 1.0f};
  TokenList suppress = {};        // never written
  TokenList begin_suppress = {};  // not as the first token after `prefix`

  /// Throws a usage error naming a value out of its range or a token outside the vocabulary.
  void check(int64_t vocab_size) const;
  /// Whether apply changes nothing.
  bool empty() const;
  /// Changes row [vocab]; forbidden tokens become minus infinity.
  void apply(std::span<float> row, const History& history) const;
};

}  // namespace quintet::decoding
