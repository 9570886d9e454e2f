#include "models/decoding/request_beams.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/logits/logits.h"

namespace quintet::decoding {
namespace {

struct Beam {
  TokenList history;
  std::vector<TokenChoice> tokens;
  float log_prob = 0;
  std::function<bool(int32_t)> stops;
};

/// One continuation of one beam.
struct Candidate {
  float log_prob = 0;  // of the whole sequence
  float step = 0;      // of its last token, after the rules
  size_t beam = 0;
  int32_t token = 0;
};

bool ranks_before(const Candidate& a, const Candidate& b) {
  if (a.log_prob != b.log_prob) return a.log_prob > b.log_prob;
  return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
}

class Beams : public RequestDecoder {
 public:
  Beams(DecodingRequest request, int64_t vocab_size)
      : request_(std::move(request)),
        vocab_(static_cast<size_t>(vocab_size)),
        kept_(static_cast<size_t>(request_.num_beams) *
              std::max<size_t>(2, 1 + request_.rules.eos_ids.size())),
        sampling_request_{
            .best = std::max(static_cast<int64_t>(kept_), request_.sampling.alternatives)},
        fed_(request_.prefilled) {
    live_.push_back(
        {.history = request_.history(), .tokens = {}, .log_prob = 0, .stops = request_.stops});
    next_rows({0});
  }

  std::span<const RowStep> rows() const override { return rows_; }

  void advance(std::span<float> logits) override {
    QT_ASSERT(logits.size() == rows_.size() * vocab_);
    advance_with([&](size_t row) {
      const std::span<float> of_row = logits.subspan(row * vocab_, vocab_);
      to_log_probs(of_row);
      if (!request_.rules.empty()) {
        request_.rules.apply(of_row, {.tokens = live_[row].history,
                                      .prompt_length = request_.prompt_length(),
                                      .inputs = request_.inputs});
        if (request_.renormalize_logits) to_log_probs(of_row);
      }
      return Continuations{largest(of_row), likeliest(of_row, request_.sampling.alternatives)};
    });
  }

  const SamplingRequest* sampling_request() const override {
    return request_.rules.empty() ? &sampling_request_ : nullptr;
  }
  void advance(const TopKResult& top_k) override {
    advance_with([&](size_t row) {
      const auto r = static_cast<int64_t>(row);
      return Continuations{top_k.likeliest(r, static_cast<int64_t>(kept_)),
                           top_k.likeliest(r, request_.sampling.alternatives)};
    });
  }

  std::vector<Hypothesis> results() const override {
    std::vector<Hypothesis> all = finished_;
    for (const Beam& beam : live_) all.push_back({beam.tokens, score(beam), FinishReason::length});
    all.resize(std::min(all.size(), static_cast<size_t>(request_.num_return_sequences)));
    return all;
  }

 private:
  /// Of one beam: the kept_ likeliest with their log probabilities after the rules, and what is listed.
  struct Continuations {
    std::vector<TokenLogProb> best, listed;
  };

  template <class Continue>
  void advance_with(const Continue& continuations) {
    if (++fed_ < std::ssize(request_.prompt)) return next_rows({0});
    std::vector<Continuations> all;
    for (size_t row = 0; row < live_.size(); ++row) all.push_back(continuations(row));
    const std::vector<Candidate> best = candidates(all);
    // The rules left nothing, or the logits are no numbers.
    if (best.empty())
      for (Beam& beam : live_) finish(beam, FinishReason::length);
    std::vector<Beam> live;
    std::vector<int32_t> sources;
    const auto beams = static_cast<size_t>(request_.num_beams);
    for (size_t c = 0; c < best.size(); ++c) {
      Beam next = extended(best[c], all[best[c].beam].listed);
      if (const auto end = ended(request_, next.history, next.stops)) {
        // Only what ranks among the first num_beams may finish.
        if (c < beams) finish(next, *end);
      } else if (live.size() < beams) {
        live.push_back(std::move(next));
        sources.push_back(static_cast<int32_t>(best[c].beam));
      }
    }
    std::stable_sort(finished_.begin(), finished_.end(),
                     [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    if (finished_.size() > beams) finished_.resize(beams);
    live_ = std::move(live);
    if (live_.empty() || settled())
      rows_.clear();
    else
      next_rows(sources);
  }

  float divided(float log_prob, size_t length) const {
    return log_prob / std::pow(static_cast<float>(length), request_.length_penalty);
  }
  float score(const Beam& beam) const {
    return beam.tokens.empty() ? 0 : divided(beam.log_prob, beam.tokens.size());
  }

  /// The kept_ largest of a row of log probabilities.
  std::vector<TokenLogProb> largest(std::span<const float> row) const {
    std::vector<float> scratch;
    std::vector<int32_t> tokens;
    indices_at_least(row, kth_largest(row, static_cast<int64_t>(kept_), scratch), tokens);
    std::vector<TokenLogProb> out;
    for (int32_t token : tokens) out.push_back({token, row[static_cast<size_t>(token)]});
    return out;
  }

  /// The continuations looked at, best first.
  std::vector<Candidate> candidates(const std::vector<Continuations>& rows) const {
    std::vector<Candidate> all;
    for (size_t b = 0; b < rows.size(); ++b)
      for (const TokenLogProb& next : rows[b].best)
        all.push_back({live_[b].log_prob + next.log_prob, next.log_prob, b, next.token});
    std::sort(all.begin(), all.end(), ranks_before);
    all.resize(std::min(all.size(), kept_));
    return all;
  }

  static void to_log_probs(std::span<float> row) {
    const RowSummary s = summarize(row);
    for (float& x : row) x = s.log_softmax(x);
  }

  Beam extended(const Candidate& c, const std::vector<TokenLogProb>& listed) const {
    Beam next = live_[c.beam];
    next.history.push_back(c.token);
    next.tokens.push_back(
        {.token = c.token, .log_prob = c.step, .model_log_prob = c.step, .top = listed});
    next.log_prob = c.log_prob;
    return next;
  }

  void finish(Beam& beam, FinishReason reason) {
    const float value = score(beam);
    finished_.push_back({std::move(beam.tokens), value, reason});
  }

  /// Whether no live beam can change the finished ones any more, as transformers judges it.
  bool settled() const {
    if (std::ssize(finished_) < request_.num_beams) return false;
    if (request_.early_stopping == EarlyStopping::yes) return true;
    const bool longest =
        request_.early_stopping == EarlyStopping::never && request_.length_penalty > 0;
    const size_t length =
        longest ? static_cast<size_t>(request_.rules.max_new_tokens) : live_.front().tokens.size();
    return divided(live_.front().log_prob, length) <= finished_.back().score;
  }

  void next_rows(const std::vector<int32_t>& sources) {
    rows_.clear();
    for (size_t b = 0; b < live_.size(); ++b) {
      const size_t at = static_cast<size_t>(fed_);
      rows_.push_back({.row = static_cast<int32_t>(b),
                       .token = live_[b].history[at],
                       .position = static_cast<int32_t>(fed_),
                       .source = sources[b]});
    }
  }

  const DecodingRequest request_;
  const size_t vocab_;
  const size_t kept_;  // continuations looked at: enough that num_beams of them do not end
  const SamplingRequest sampling_request_;
  int64_t fed_;                       // tokens read so far
  std::vector<Beam> live_;            // best first
  std::vector<Hypothesis> finished_;  // best first, num_beams at most
  std::vector<RowStep> rows_;
};

}  // namespace

std::unique_ptr<RequestDecoder> start_beams(DecodingRequest request, int64_t vocab_size) {
  return std::make_unique<Beams>(std::move(request), vocab_size);
}

}  // namespace quintet::decoding
