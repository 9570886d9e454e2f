#include "models/decoding/scoring.h"

#include <algorithm>

#include "kernels/logits/logits.h"

namespace quintet::decoding {
namespace {

class Scoring : public RequestDecoder {
 public:
  Scoring(TokenList targets, int64_t alternatives, RowStep start)
      : targets_(std::move(targets)),
        alternatives_(alternatives),
        next_(start),
        sampling_request_{.best = std::max<int64_t>(1, alternatives),
                          .draws = {{.row = 0, .token = targets_.front()}}} {}

  std::span<const RowStep> rows() const override {
    return std::span(&next_, hypothesis_.tokens.size() < targets_.size() ? 1 : 0);
  }

  void advance(std::span<float> logits) override {
    const RowSummary row = summarize(logits);
    const float log_prob = row.log_softmax(logits[static_cast<size_t>(wanted())]);
    take(log_prob, likeliest(logits, alternatives_));
  }

  const SamplingRequest* sampling_request() const override { return &sampling_request_; }
  void advance(const TopKResult& top_k) override {
    take(top_k.log_prob(0, top_k.drawn->logit), top_k.likeliest(0, alternatives_));
  }

  std::vector<Hypothesis> results() const override { return {hypothesis_}; }
  std::vector<Hypothesis> take_results() override {
    std::vector<Hypothesis> one(1);
    one.front() = std::move(hypothesis_);
    return one;
  }

 private:
  int32_t wanted() const { return targets_[hypothesis_.tokens.size()]; }

  void take(float log_prob, std::vector<TokenLogProb> likeliest) {
    hypothesis_.tokens.push_back({.token = wanted(),
                                  .log_prob = log_prob,
                                  .model_log_prob = log_prob,
                                  .top = std::move(likeliest)});
    hypothesis_.score += log_prob;
    next_.token = hypothesis_.tokens.back().token;
    ++next_.position;
    if (hypothesis_.tokens.size() < targets_.size())
      sampling_request_.draws.front().token = wanted();
  }

  const TokenList targets_;
  const int64_t alternatives_;
  RowStep next_;
  SamplingRequest sampling_request_;
  Hypothesis hypothesis_;
};

}  // namespace

std::unique_ptr<RequestDecoder> start_scoring(TokenList targets, int64_t vocab_size,
                                              int64_t alternatives, RowStep start) {
  QT_CHECK(!targets.empty(), "scoring: no tokens to score");
  for (int32_t token : targets)
    QT_CHECK(token >= 0 && token < vocab_size,
             "scoring: token {} lies outside the vocabulary of {}", token, vocab_size);
  return std::make_unique<Scoring>(std::move(targets), alternatives, start);
}

}  // namespace quintet::decoding
