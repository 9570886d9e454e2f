#include "models/decoding/scoring.h"

#include "kernels/logits/logits.h"

namespace quintet::decoding {
namespace {

class Scoring : public Generation {
 public:
  Scoring(TokenList targets, int64_t alternatives, int32_t start)
      : targets_(std::move(targets)), alternatives_(alternatives), next_{.token = start} {}

  std::span<const RowStep> rows() const override {
    return std::span(&next_, hypothesis_.tokens.size() < targets_.size() ? 1 : 0);
  }

  void advance(std::span<float> logits) override {
    const int32_t token = targets_[hypothesis_.tokens.size()];
    const RowSummary row = summarize(logits);
    const float log_prob = (logits[static_cast<size_t>(token)] - row.max) - row.log_sum;
    hypothesis_.tokens.push_back({.token = token,
                                  .log_prob = log_prob,
                                  .model_log_prob = log_prob,
                                  .top = likeliest(logits, alternatives_)});
    hypothesis_.score += log_prob;
    next_.token = token;
    ++next_.position;
  }

  std::vector<Hypothesis> results() const override { return {hypothesis_}; }

 private:
  const TokenList targets_;
  const int64_t alternatives_;
  RowStep next_;
  Hypothesis hypothesis_;
};

}  // namespace

std::unique_ptr<Generation> start_scoring(TokenList targets, int64_t vocab_size,
                                          int64_t alternatives, int32_t start) {
  QT_CHECK(!targets.empty(), "scoring: no tokens to score");
  for (int32_t token : targets)
    QT_CHECK(token >= 0 && token < vocab_size,
             "scoring: token {} lies outside the vocabulary of {}", token, vocab_size);
  return std::make_unique<Scoring>(std::move(targets), alternatives, start);
}

}  // namespace quintet::decoding
