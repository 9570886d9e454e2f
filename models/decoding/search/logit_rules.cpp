#include "models/decoding/search/logit_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/check.h"

namespace quintet::decoding {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
using Tokens = std::span<const int32_t>;

float& logit(std::span<float> row, int32_t token) { return row[static_cast<size_t>(token)]; }

void forbid(std::span<float> row, Tokens tokens) {
  for (int32_t token : tokens) logit(row, token) = kNever;
}

void force(std::span<float> row, Tokens tokens) {
  std::fill(row.begin(), row.end(), kNever);
  for (int32_t token : tokens) logit(row, token) = 0;
}

TokenList distinct(Tokens tokens) {
  TokenList all(tokens.begin(), tokens.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

/// Divides positive logits by the penalty and multiplies negative ones (arXiv:1909.05858).
void penalize(std::span<float> row, Tokens tokens, float penalty) {
  if (penalty == 1) return;
  for (int32_t token : distinct(tokens)) {
    float& x = logit(row, token);
    x = x < 0 ? x * penalty : x / penalty;
  }
}

/// Whether `history` ends with `tokens`, and holds one token more than they are.
bool follows(Tokens history, Tokens tokens) {
  return history.size() > tokens.size() &&
         std::equal(tokens.begin(), tokens.end(), history.end() - std::ssize(tokens));
}

/// Forbids what would repeat n tokens of `source`, given the last n - 1 of the history.
void forbid_ngrams(std::span<float> row, Tokens source, Tokens history, int64_t size) {
  const auto n = static_cast<size_t>(size);
  if (n == 0 || history.size() + 1 < n) return;
  const Tokens last = history.last(n - 1);
  for (size_t i = 0; i + n <= source.size(); ++i)
    if (std::equal(last.begin(), last.end(), source.begin() + static_cast<std::ptrdiff_t>(i)))
      logit(row, source[i + n - 1]) = kNever;
}

void check_tokens(const char* rule, Tokens tokens, int64_t vocab) {
  for (int32_t token : tokens)
    QT_CHECK(token >= 0 && token < vocab, "{}: token {} lies outside the vocabulary of {}", rule,
             token, vocab);
}

}  // namespace

void LogitRules::check(int64_t vocab_size) const {
  QT_CHECK(repetition_penalty > 0 && encoder_repetition_penalty > 0,
           "repetition_penalty {} and encoder_repetition_penalty {} must be positive",
           repetition_penalty, encoder_repetition_penalty);
  QT_CHECK(no_repeat_ngram_size >= 0 && encoder_no_repeat_ngram_size >= 0,
           "no_repeat_ngram_size {} and encoder_no_repeat_ngram_size {} must not be negative",
           no_repeat_ngram_size, encoder_no_repeat_ngram_size);
  QT_CHECK(min_new_tokens >= 0, "min_length {} must not be negative", min_new_tokens);
  check_tokens("eos", eos_ids, vocab_size);
  check_tokens("prefix", prefix, vocab_size);
  check_tokens("suppress", suppress, vocab_size);
  check_tokens("begin_suppress", begin_suppress, vocab_size);
  for (const TokenList& word : bad_words) {
    QT_CHECK(!word.empty(), "bad_words: a word must have at least one token");
    check_tokens("bad_words", word, vocab_size);
  }
  for (const auto& [tokens, bias] : sequence_bias) {
    QT_CHECK(!tokens.empty() && !std::isnan(bias),
             "sequence_bias: a sequence must have at least one token, and a number");
    check_tokens("sequence_bias", tokens, vocab_size);
  }
}

bool LogitRules::empty() const {
  return sequence_bias.empty() && encoder_repetition_penalty == 1 && repetition_penalty == 1 &&
         no_repeat_ngram_size == 0 && encoder_no_repeat_ngram_size == 0 && bad_words.empty() &&
         min_new_tokens == 0 && prefix.empty() && !forced_eos && decay_length_penalty.second == 1 &&
         suppress.empty() && begin_suppress.empty();
}

void LogitRules::apply(std::span<float> row, const History& history) const {
  const int64_t generated = history.generated();
  // Single tokens are biased everywhere, longer sequences where their last token is next.
  const auto bias = [&](const TokenList& tokens, float value) {
    if (follows(history.tokens, Tokens(tokens).first(tokens.size() - 1)))
      logit(row, tokens.back()) += value;
  };
  for (const auto& [tokens, value] : sequence_bias) bias(tokens, value);
  penalize(row, history.inputs, 1 / encoder_repetition_penalty);
  penalize(row, history.tokens, repetition_penalty);
  forbid_ngrams(row, history.tokens, history.tokens, no_repeat_ngram_size);
  forbid_ngrams(row, history.inputs, history.tokens, encoder_no_repeat_ngram_size);
  for (const TokenList& word : bad_words)
    if (word.size() > 1 || std::find(eos_ids.begin(), eos_ids.end(), word[0]) == eos_ids.end())
      bias(word, kNever);
  if (generated < min_new_tokens) forbid(row, eos_ids);
  if (generated < std::ssize(prefix)) force(row, {&prefix[static_cast<size_t>(generated)], 1});
  if (forced_eos && generated == max_new_tokens - 1) force(row, eos_ids);
  const auto& [start, factor] = decay_length_penalty;
  if (factor != 1 && generated > start)
    for (int32_t eos : eos_ids) {
      float& x = logit(row, eos);
      x += std::abs(x) * (std::pow(factor, static_cast<float>(generated - start)) - 1);
    }
  forbid(row, suppress);
  if (generated == std::ssize(prefix)) forbid(row, begin_suppress);
}

}  // namespace quintet::decoding
