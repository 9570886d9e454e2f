#include "models/decoding/request.h"

#include <algorithm>

#include "models/decoding/request_beams.h"
#include "models/decoding/scoring.h"

namespace quintet::decoding {
namespace {

/// num_return_sequences sequences, each chosen token by token.
class TokenDecoder : public RequestDecoder {
 public:
  TokenDecoder(DecodingRequest request, int64_t vocab_size)
      : request_(std::move(request)), vocab_(vocab_size), fed_(request_.prefilled) {
    sequences_.resize(static_cast<size_t>(request_.num_return_sequences));
    for (Sequence& sequence : sequences_) {
      sequence.history = request_.history();
      sequence.stops = request_.stops;
    }
    next();
  }

  std::span<const RowStep> rows() const override { return rows_; }

  void advance(std::span<float> logits) override {
    const auto vocab = static_cast<size_t>(vocab_);
    QT_ASSERT(logits.size() == rows_.size() * vocab);
    advance_with([&](size_t, int64_t row, int64_t decode) {
      const Sequence& sequence = sequences_[static_cast<size_t>(decode)];
      const auto of_row = logits.subspan(static_cast<size_t>(row) * vocab, vocab);
      std::vector<float> mine(of_row.begin(), of_row.end());
      request_.rules.apply(mine, {.tokens = sequence.history,
                                  .prompt_length = request_.prompt_length(),
                                  .inputs = request_.inputs});
      return choose_token(mine, request_.sampling, decode, std::ssize(sequence.hypothesis.tokens));
    });
  }

  std::optional<DraftedSequence> drafted() const override {
    if (sequences_.size() != 1) return std::nullopt;
    const Sequence& only = sequences_.front();
    const int64_t left = request_.rules.max_new_tokens - std::ssize(only.hypothesis.tokens);
    return DraftedSequence{.tokens = std::span(only.history).subspan(request_.context.size()),
                           .room = chooses() && !only.done ? left - 1 : 0};
  }
  void give_drafts(std::span<const int32_t> drafts) override {
    QT_ASSERT(drafted() && std::ssize(drafts) <= drafted()->room);
    rows_.resize(1);
    for (const int32_t draft : drafts)
      rows_.push_back({.row = 0, .token = draft, .position = rows_.back().position + 1});
    ask();
  }

  const SamplingRequest* sampling_request() const override {
    return request_.rules.empty() ? &sampling_request_ : nullptr;
  }
  void advance(const TopKResult& top_k) override {
    advance_with([&](size_t which, int64_t row, int64_t) {
      const int64_t first = row * top_k.width;
      DrawnToken drawn{.token = std::max(top_k.indices[first], 0),
                       .log_prob = top_k.log_prob(row, top_k.values[first]),
                       .logit = top_k.values[first]};
      if (!request_.sampling.greedy()) drawn = top_k.drawn[which];
      return TokenChoice{.token = drawn.token,
                         .log_prob = drawn.log_prob,
                         .model_log_prob = top_k.log_prob(row, drawn.logit),
                         .top = top_k.likeliest(row, request_.sampling.alternatives)};
    });
  }

  std::vector<Hypothesis> results() const override {
    std::vector<Hypothesis> all;
    for (const Sequence& sequence : sequences_) all.push_back(sequence.hypothesis);
    return all;
  }
  std::vector<Hypothesis> take_results() override {
    std::vector<Hypothesis> all;
    all.reserve(sequences_.size());
    for (Sequence& sequence : sequences_) all.push_back(std::move(sequence.hypothesis));
    return all;
  }
  const Hypothesis* settled(size_t i) const override { return &sequences_.at(i).hypothesis; }

 private:
  struct Sequence {
    TokenList history;
    std::function<bool(int32_t)> stops;
    Hypothesis hypothesis;
    bool done = false;
  };

  /// Whether the step in hand is one after which tokens are chosen.
  bool chooses() const { return fed_ + 1 >= std::ssize(request_.prompt); }
  /// Rows behind the first are drafts.
  bool has_drafts() const { return sequences_.size() == 1 && rows_.size() > 1; }

  /// choose(i, row of rows_, decode): the next token of each sequence that goes on, the i-th of them.
  template <class Choose>
  void advance_with(const Choose& choose) {
    size_t which = 0;
    int64_t read = 1;
    for_each_choice([&](int64_t row, int64_t decode) {
      const size_t i = which++;
      if (has_drafts() && row > 0) {
        const Sequence& only = sequences_.front();
        if (row > read || only.done || only.history.back() != rows_[i].token) return;
        ++read;
      }
      take(decode, choose(i, row, decode));
    });
    fed_ += read;
    next();
  }

  /// body(row of rows_, decode) for the sequences that the step in hand chooses a token for: one row
  /// is all of theirs until the first choice.
  template <class Body>
  void for_each_choice(const Body& body) const {
    if (!chooses()) return;
    if (has_drafts()) {
      for (int64_t row = 0; row < std::ssize(rows_); ++row) body(row, 0);
      return;
    }
    int64_t row = 0;
    for (int64_t d = 0; d < std::ssize(sequences_); ++d)
      if (const Sequence& s = sequences_[static_cast<size_t>(d)]; !s.done)
        body(s.hypothesis.tokens.empty() ? 0 : row++, d);
  }

  void ask() {
    sampling_request_.best = 0;
    sampling_request_.draws.clear();
    const SamplingParameters& parameters = request_.sampling;
    for_each_choice([&](int64_t row, int64_t decode) {
      sampling_request_.best = std::max<int64_t>(1, parameters.alternatives);
      if (parameters.greedy()) return;
      const auto& tokens = sequences_[static_cast<size_t>(decode)].hypothesis.tokens;
      sampling_request_.draws.push_back(
          {.row = static_cast<int32_t>(row),
           .temperature = parameters.temperature,
           .topp = parameters.top_p < 1 ? parameters.top_p : 0,
           .topk = parameters.top_k,
           .key =
               draw_key(parameters.seed, decode, std::ssize(tokens) + (has_drafts() ? row : 0))});
    });
  }

  void take(int64_t decode, TokenChoice choice) {
    Sequence& sequence = sequences_[static_cast<size_t>(decode)];
    sequence.history.push_back(choice.token);
    sequence.hypothesis.score += choice.log_prob;
    sequence.hypothesis.tokens.push_back(std::move(choice));
    const auto end = ended(request_, sequence.history, sequence.stops);
    sequence.done = end.has_value();
    sequence.hypothesis.finish = end.value_or(FinishReason::length);
  }

  void next() {
    rows_.clear();
    const auto position = static_cast<int32_t>(fed_);
    if (fed_ < std::ssize(request_.prompt)) {
      rows_.push_back({0, request_.prompt[static_cast<size_t>(fed_)], position, 0});
    } else {
      for (size_t d = 0; d < sequences_.size(); ++d)
        if (const Sequence& s = sequences_[d]; !s.done)
          rows_.push_back(
              {.row = static_cast<int32_t>(d),
               .token = s.history.back(),
               .position = position,
               .source = s.hypothesis.tokens.size() == 1 ? 0 : static_cast<int32_t>(d)});
    }
    ask();
  }

  const DecodingRequest request_;
  const int64_t vocab_;
  int64_t fed_;  // tokens read so far
  std::vector<Sequence> sequences_;
  std::vector<RowStep> rows_;
  SamplingRequest sampling_request_;
};

}  // namespace

TokenList Hypothesis::ids() const {
  TokenList ids;
  for (const TokenChoice& choice : tokens) ids.push_back(choice.token);
  return ids;
}

void DecodingRequest::check(int64_t vocab_size) const {
  QT_CHECK(!prompt.empty(), "generation: the prompt must hold the start token");
  QT_ASSERT(prefilled >= 0 && prefilled < std::ssize(prompt));
  QT_CHECK(
      targets.empty() || prefilled + 1 == std::ssize(prompt),
      "generation: a given answer follows a prompt that the cache holds but for its last token");
  QT_CHECK(rules.max_new_tokens > 0, "generation: max_new_tokens {} must be positive",
           rules.max_new_tokens);
  QT_CHECK(num_beams > 0 && num_return_sequences > 0,
           "generation: num_beams {} and num_return_sequences {} must be positive", num_beams,
           num_return_sequences);
  QT_CHECK(num_beams == 1 || num_return_sequences <= num_beams,
           "generation: {} sequences wanted of {} beams", num_return_sequences, num_beams);
  QT_CHECK(num_beams == 1 || sampling.greedy(),
           "generation: beams are searched, not sampled: give num_beams or temperature");
  rules.check(vocab_size);
  sampling.check();
}

std::optional<FinishReason> ended(const DecodingRequest& request, std::span<const int32_t> history,
                                  const std::function<bool(int32_t)>& stops) {
  const auto generated = history.subspan(static_cast<size_t>(request.prompt_length()));
  const TokenList& eos = request.rules.eos_ids;
  if (std::find(eos.begin(), eos.end(), generated.back()) != eos.end()) return FinishReason::eos;
  if (stops && stops(generated.back())) return FinishReason::stop;
  if (std::ssize(generated) >= request.rules.max_new_tokens) return FinishReason::length;
  return std::nullopt;
}

int64_t rows_of(const DecodingRequest& request) {
  return std::max(request.num_beams, request.num_return_sequences);
}

std::unique_ptr<RequestDecoder> start_decoding(DecodingRequest request, int64_t vocab_size) {
  request.check(vocab_size);
  if (!request.targets.empty())
    return start_scoring(
        request.targets, vocab_size, request.sampling.alternatives,
        {.token = request.prompt.back(), .position = static_cast<int32_t>(request.prefilled)});
  if (request.num_beams > 1) return start_beams(std::move(request), vocab_size);
  return std::make_unique<TokenDecoder>(std::move(request), vocab_size);
}

void run(TokenModel& model, std::span<const std::unique_ptr<RequestDecoder>> running,
         int64_t rows_per_item) {
  const int64_t vocab = model.vocab_size();
  while (true) {
    std::vector<int32_t> rows, tokens, positions, sources;
    std::vector<size_t> begin;
    for (size_t i = 0; i < running.size(); ++i) {
      const auto first = static_cast<int32_t>(static_cast<int64_t>(i) * rows_per_item);
      begin.push_back(rows.size());
      for (const RowStep& step : running[i]->rows()) {
        rows.push_back(first + step.row);
        tokens.push_back(step.token);
        positions.push_back(step.position);
        sources.push_back(first + step.source);
      }
    }
    if (rows.empty()) return;
    const std::span<float> logits =
        model.step({.rows = rows, .tokens = tokens, .positions = positions, .sources = sources});
    const auto items = static_cast<int64_t>(running.size());
#pragma omp parallel for schedule(dynamic, 1) if (items > 1)
    for (int64_t i = 0; i < items; ++i) {
      RequestDecoder& one = *running[static_cast<size_t>(i)];
      if (!one.rows().empty())
        one.advance(logits.subspan(begin[static_cast<size_t>(i)] * static_cast<size_t>(vocab),
                                   one.rows().size() * static_cast<size_t>(vocab)));
    }
  }
}

std::vector<std::vector<Hypothesis>> generate(TokenModel& model,
                                              std::span<const DecodingRequest> requests,
                                              int64_t rows_per_item) {
  std::vector<std::unique_ptr<RequestDecoder>> running;
  for (const DecodingRequest& request : requests) {
    QT_ASSERT(rows_of(request) <= rows_per_item);
    running.push_back(start_decoding(request, model.vocab_size()));
  }
  run(model, running, rows_per_item);
  std::vector<std::vector<Hypothesis>> results;
  for (const auto& one : running) results.push_back(one->results());
  return results;
}

}  // namespace quintet::decoding
