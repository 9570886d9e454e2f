#include "models/decoding/request.h"

#include <algorithm>

#include "models/decoding/request_beams.h"

namespace quintet::decoding {
namespace {

/// num_return_sequences sequences, each chosen token by token.
class Choices : public Generation {
 public:
  Choices(GenerationRequest request, int64_t vocab_size)
      : request_(std::move(request)), vocab_(vocab_size), fed_(request_.prefilled) {
    sequences_.resize(static_cast<size_t>(request_.num_return_sequences));
    for (Sequence& sequence : sequences_) sequence.history = request_.prompt;
    next_rows();
  }

  std::span<const RowStep> rows() const override { return rows_; }

  void advance(std::span<float> logits) override {
    QT_ASSERT(std::ssize(logits) == std::ssize(rows_) * vocab_);
    const bool reads_prompt = ++fed_ < std::ssize(request_.prompt);
    for (size_t r = 0; r < rows_.size() && !reads_prompt; ++r)
      for (int64_t decode = 0; decode < std::ssize(sequences_); ++decode)
        if (row_of(decode) == rows_[r].row)
          choose(decode,
                 logits.subspan(r * static_cast<size_t>(vocab_), static_cast<size_t>(vocab_)));
    next_rows();
  }

  std::vector<Hypothesis> results() const override {
    std::vector<Hypothesis> all;
    for (const Sequence& sequence : sequences_) all.push_back(sequence.hypothesis);
    return all;
  }

 private:
  struct Sequence {
    TokenList history;
    Hypothesis hypothesis;
    bool done = false;
  };

  /// Sequences are one until the first choice.
  int64_t row_of(int64_t decode) const {
    return sequences_[static_cast<size_t>(decode)].hypothesis.tokens.empty() ? 0 : decode;
  }

  void choose(int64_t decode, std::span<const float> logits) {
    Sequence& sequence = sequences_[static_cast<size_t>(decode)];
    std::vector<float> row(logits.begin(), logits.end());
    request_.rules.apply(row, {.tokens = sequence.history,
                               .prompt_length = std::ssize(request_.prompt),
                               .inputs = request_.inputs});
    std::vector<TokenChoice>& tokens = sequence.hypothesis.tokens;
    tokens.push_back(choose_token(row, request_.sampling, decode, std::ssize(tokens)));
    sequence.history.push_back(tokens.back().token);
    sequence.hypothesis.score += tokens.back().log_prob;
    const auto end = ended(request_, sequence.history);
    sequence.done = end.has_value();
    sequence.hypothesis.finish = end.value_or(FinishReason::length);
  }

  void next_rows() {
    rows_.clear();
    const auto position = static_cast<int32_t>(fed_);
    if (fed_ < std::ssize(request_.prompt)) {
      rows_.push_back({0, request_.prompt[static_cast<size_t>(fed_)], position, 0});
      return;
    }
    for (size_t d = 0; d < sequences_.size(); ++d)
      if (const Sequence& s = sequences_[d]; !s.done)
        rows_.push_back({.row = static_cast<int32_t>(d),
                         .token = s.history.back(),
                         .position = position,
                         .source = s.hypothesis.tokens.size() == 1 ? 0 : static_cast<int32_t>(d)});
  }

  const GenerationRequest request_;
  const int64_t vocab_;
  int64_t fed_;  // tokens read so far
  std::vector<Sequence> sequences_;
  std::vector<RowStep> rows_;
};

}  // namespace

TokenList Hypothesis::ids() const {
  TokenList ids;
  for (const TokenChoice& choice : tokens) ids.push_back(choice.token);
  return ids;
}

void GenerationRequest::check(int64_t vocab_size) const {
  QT_CHECK(!prompt.empty(), "generation: the prompt must hold the start token");
  QT_ASSERT(prefilled >= 0 && prefilled < std::ssize(prompt));
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

std::optional<FinishReason> ended(const GenerationRequest& request,
                                  std::span<const int32_t> history) {
  const auto generated = history.subspan(request.prompt.size());
  const TokenList& eos = request.rules.eos_ids;
  if (std::find(eos.begin(), eos.end(), generated.back()) != eos.end()) return FinishReason::eos;
  if (request.stops && request.stops(generated)) return FinishReason::stop;
  if (std::ssize(generated) >= request.rules.max_new_tokens) return FinishReason::length;
  return std::nullopt;
}

int64_t rows_of(const GenerationRequest& request) {
  return std::max(request.num_beams, request.num_return_sequences);
}

std::unique_ptr<Generation> start_generation(GenerationRequest request, int64_t vocab_size) {
  request.check(vocab_size);
  if (request.num_beams > 1) return start_beams(std::move(request), vocab_size);
  return std::make_unique<Choices>(std::move(request), vocab_size);
}

void run(TokenModel& model, std::span<const std::unique_ptr<Generation>> running,
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
      Generation& one = *running[static_cast<size_t>(i)];
      if (!one.rows().empty())
        one.advance(logits.subspan(begin[static_cast<size_t>(i)] * static_cast<size_t>(vocab),
                                   one.rows().size() * static_cast<size_t>(vocab)));
    }
  }
}

std::vector<std::vector<Hypothesis>> generate(TokenModel& model,
                                              std::span<const GenerationRequest> requests,
                                              int64_t rows_per_item) {
  std::vector<std::unique_ptr<Generation>> running;
  for (const GenerationRequest& request : requests) {
    QT_ASSERT(rows_of(request) <= rows_per_item);
    running.push_back(start_generation(request, model.vocab_size()));
  }
  run(model, running, rows_per_item);
  std::vector<std::vector<Hypothesis>> results;
  for (const auto& one : running) results.push_back(one->results());
  return results;
}

}  // namespace quintet::decoding
