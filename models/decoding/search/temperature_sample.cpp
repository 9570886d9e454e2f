#include "models/decoding/search/temperature_sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/logits/logits.h"
#include "models/decoding/search/filters.h"
#include "models/decoding/search/select.h"

namespace quintet::decoding {
namespace {

constexpr float kMinTemperature = 1e-4f;

struct Draw {
  int32_t token = 0;
  float log_prob = 0;
};

/// One token of one row, not greedily. `first`: index of the row's first element in the step's
/// noise.
Draw draw_token(std::span<float> logits, float temperature, const SampleOptions& options, Key key,
                uint64_t first, std::vector<float>& scratch) {
  std::vector<float> original;
  if (!options.rescale_log_probs) original.assign(logits.begin(), logits.end());
  divide(logits, temperature);
  int64_t token;
  if (options.topk > 0) {
    topk_mask(logits, options.topk, kNegInf, scratch);
    // A masked token cannot win against noise of at most 16: only the others need any.
    std::vector<int32_t> kept;
    indices_at_least(logits, kNegInf / 2, kept);
    token = kept.empty() ? draw_categorical(logits, key, first) : kept.front();
    float best = -std::numeric_limits<float>::infinity();
    for (int32_t candidate : kept) {
      const auto c = static_cast<size_t>(candidate);
      const float score = logits[c] + gumbel_noise(key, first + c);
      if (score > best) {
        best = score;
        token = candidate;
      }
    }
  } else {
    if (options.topp > 0) topp_mask(logits, options.topp, kNegInf, scratch);
    token = draw_categorical(logits, key, first);
  }
  const std::span<const float> scored =
      options.rescale_log_probs ? logits : std::span<const float>(original);
  return {static_cast<int32_t>(token),
          summarize(scored).log_softmax(scored[static_cast<size_t>(token)])};
}

class Sampler {
 public:
  Sampler(const Prompts& inputs, TokenModel& model, int32_t eos_id, const SampleOptions& options)
      : inputs_(inputs), model_(model), eos_id_(eos_id), options_(options) {
    check();
    rows_ = inputs.batch * options.num_decodes;
    width_ = inputs.length + 2;  // one dropped at the start, one for the writes of rows that ended
    start();
  }

  Decodes run() {
    if (!run_on_model())
      while (std::find(state_.ended.begin(), state_.ended.end(), 0) != state_.ended.end()) step();
    if (options_.state_callback_fn) options_.state_callback_fn(state_);
    return result();
  }

 private:
  void check() const {
    inputs_.check();
    QT_CHECK(options_.num_decodes > 0, "temperature_sample: num_decodes {} must be positive",
             options_.num_decodes);
    QT_CHECK(!(options_.topk != 0 && options_.topp != 0),
             "temperature_sample: at most one of topk ({}) and topp ({}) may be non-zero",
             options_.topk, options_.topp);
    QT_CHECK(options_.topk >= 0 && options_.topp >= 0 && options_.topp <= 1,
             "temperature_sample: topk {} must be 0 or more and topp {} between 0 and 1",
             options_.topk, options_.topp);
    const auto temperatures = static_cast<int64_t>(options_.temperature.size());
    QT_CHECK(
        temperatures == 1 || temperatures == inputs_.batch,
        "temperature_sample: {} temperatures for a batch of {}: give one, or one for each item",
        temperatures, inputs_.batch);
    QT_CHECK(!options_.initial_index ||
                 static_cast<int64_t>(options_.initial_index->size()) == inputs_.batch,
             "temperature_sample: initial_index must have one element for each of {} items",
             inputs_.batch);
  }

  /// Tokens item may hold: the whole length, or its prompt and max_decode_steps.
  int64_t allowance(int64_t item) const {
    if (!options_.max_decode_steps) return inputs_.length;
    int64_t steps = *options_.max_decode_steps;
    if (options_.max_decode_steps_hard_limit && *options_.max_decode_steps_hard_limit > 0)
      steps = std::min(steps, *options_.max_decode_steps_hard_limit);
    QT_CHECK(steps <= inputs_.length,
             "temperature_sample: max_decode_steps {} exceeds the sequence length {}", steps,
             inputs_.length);
    int64_t prompt = 0;
    for (int64_t i = 0; i < inputs_.length; ++i) prompt += inputs_.at(item, i) != 0;
    return std::min(inputs_.length, prompt + steps);
  }

  int32_t& sequence(int64_t row, int64_t i) {
    return state_.sequences[static_cast<size_t>(row * width_ + i)];
  }
  int32_t count_eos(int64_t row) {
    const auto begin = state_.sequences.begin() + row * width_;
    return static_cast<int32_t>(std::count(begin, begin + width_, eos_id_));
  }

  void start() {
    const auto n = static_cast<size_t>(rows_);
    state_.length = inputs_.length;
    state_.rng = options_.decode_rng;
    state_.cur_index.assign(n, 0);
    state_.cur_token.assign(n, 0);
    state_.ended.assign(n, 0);
    state_.log_prob.assign(n, 0.0f);
    state_.sequences.assign(static_cast<size_t>(rows_ * width_), 0);
    allowance_.resize(n);
    initial_eos_.resize(n);
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t item = row / options_.num_decodes;
      const auto r = static_cast<size_t>(row);
      for (int64_t i = 0; i < inputs_.length; ++i) sequence(row, i) = inputs_.at(item, i);
      if (options_.initial_index) {
        const int32_t begin = (*options_.initial_index)[static_cast<size_t>(item)];
        QT_CHECK(begin >= 0 && begin < width_,
                 "temperature_sample: initial_index {} outside [0, {})", begin, width_);
        state_.cur_index[r] = begin;
        state_.cur_token[r] = sequence(row, begin);
      }
      allowance_[r] = allowance(item);
      initial_eos_[r] = count_eos(row);
    }
  }

  /// The same loop where the model lies, if it can.
  bool run_on_model() {
    if (options_.state_callback_fn || options_.logit_callback_fn) return false;
    std::vector<int32_t> allowances;
    int64_t steps = 1;
    for (size_t row = 0; row < allowance_.size(); ++row) {
      allowances.push_back(static_cast<int32_t>(allowance_[row]));
      steps = std::max(steps, allowance_[row] - state_.cur_index[row]);
    }
    std::optional<SampleTrace> trace =
        model_.run_samples({.rows = rows_,
                            .decodes = options_.num_decodes,
                            .width = width_,
                            .steps = steps,
                            .eos_id = eos_id_,
                            .rng = state_.rng,
                            .temperatures = options_.temperature,
                            .topk = options_.topk,
                            .topp = options_.topp,
                            .rescale_log_probs = options_.rescale_log_probs,
                            .sequences = state_.sequences,
                            .indices = state_.cur_index,
                            .first_tokens = state_.cur_token,
                            .allowances = allowances});
    if (!trace) return false;
    state_.sequences = std::move(trace->sequences);
    state_.log_prob = std::move(trace->log_probs);
    return true;
  }

  void step() {
    if (options_.state_callback_fn) options_.state_callback_fn(state_);
    active_.clear();
    const bool all = options_.state_callback_fn || options_.logit_callback_fn;
    for (int64_t row = 0; row < rows_; ++row)
      if (all || !state_.ended[static_cast<size_t>(row)])
        active_.push_back(static_cast<int32_t>(row));
    std::vector<int32_t> tokens, positions;
    for (int32_t row : active_) {
      tokens.push_back(state_.cur_token[static_cast<size_t>(row)]);
      positions.push_back(state_.cur_index[static_cast<size_t>(row)]);
    }
    const StepInput input{.rows = active_, .tokens = tokens, .positions = positions, .sources = {}};
    const bool greedy = !options_.logit_callback_fn &&
                        std::all_of(options_.temperature.begin(), options_.temperature.end(),
                                    [](float t) { return !(t > kMinTemperature); });
    std::span<float> logits;
    if (!greedy) logits = model_.step(input);
    if (options_.logit_callback_fn) options_.logit_callback_fn(logits, state_);
    const Key draw_key = split_at(state_.rng, 0);
    state_.rng = split_at(state_.rng, 1);
    std::vector<Draw> draws(static_cast<size_t>(rows_));
    greedy ? draw_greedily(input, draws) : draw(logits, draw_key, draws);
    for (int64_t row = 0; row < rows_; ++row) advance(row, draws[static_cast<size_t>(row)]);
    ++state_.step;
  }

  void draw_greedily(const StepInput& input, std::vector<Draw>& draws) const {
    const std::vector<RowSummary> rows = model_.step_greedily(input, !options_.rescale_log_probs);
    for (size_t a = 0; a < active_.size(); ++a) {
      const RowSummary& row = rows[a];
      draws[static_cast<size_t>(active_[a])] = {
          static_cast<int32_t>(row.argmax),
          options_.rescale_log_probs ? 0.0f : row.log_softmax(row.max)};
    }
  }

  void draw(std::span<float> logits, Key key, std::vector<Draw>& draws) const {
    const int64_t vocab = model_.vocab_size(), active = static_cast<int64_t>(active_.size());
#pragma omp parallel if (active > 1)
    {
      std::vector<float> scratch;
#pragma omp for schedule(static)
      for (int64_t a = 0; a < active; ++a) {
        const auto row = static_cast<size_t>(active_[static_cast<size_t>(a)]);
        const size_t item = row / static_cast<size_t>(options_.num_decodes);
        const float temperature = options_.temperature[options_.temperature.size() > 1 ? item : 0];
        const auto own = logits.subspan(static_cast<size_t>(a * vocab), static_cast<size_t>(vocab));
        if (temperature > kMinTemperature) {
          draws[row] = draw_token(own, temperature, options_, key,
                                  row * static_cast<uint64_t>(vocab), scratch);
        } else {
          const RowSummary s = summarize(own);
          draws[row] = {static_cast<int32_t>(s.argmax),
                        options_.rescale_log_probs ? 0.0f : s.log_softmax(s.max)};
        }
      }
    }
  }

  /// Writes the row's next token: the drawn one, the prompt's, or padding after the end.
  void advance(int64_t row, Draw drawn) {
    const auto r = static_cast<size_t>(row);
    // Beyond its allowance a row goes on overwriting one place behind the output.
    const int64_t i = std::min<int64_t>(state_.cur_index[r], allowance_[r]);
    const int32_t prompt = sequence(row, i + 1);
    const bool ended = state_.ended[r] != 0;
    const int32_t token = prompt == 0 ? drawn.token : prompt;
    if (prompt == 0 && !ended) state_.log_prob[r] += drawn.log_prob;
    sequence(row, i + 1) = ended ? 0 : token;
    state_.cur_token[r] = ended ? 0 : token;
    const bool more_eos = count_eos(row) > initial_eos_[r];
    state_.ended[r] = ended || more_eos || i >= allowance_[r] - 1;
    state_.cur_index[r] = static_cast<int32_t>(i + 1);
  }

  Decodes result() {
    Decodes out{.batch = inputs_.batch,
                .num_decodes = options_.num_decodes,
                .length = inputs_.length,
                .tokens = {},
                .scores = {}};
    std::vector<int64_t> order(static_cast<size_t>(options_.num_decodes));
    for (int64_t item = 0; item < inputs_.batch; ++item) {
      std::iota(order.begin(), order.end(), item * options_.num_decodes);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return state_.log_prob[static_cast<size_t>(a)] < state_.log_prob[static_cast<size_t>(b)];
      });
      for (int64_t row : order) {
        const auto begin = state_.sequences.begin() + row * width_ + 1;
        out.tokens.insert(out.tokens.end(), begin, begin + inputs_.length);
        out.scores.push_back(state_.log_prob[static_cast<size_t>(row)]);
      }
    }
    return out;
  }

  const Prompts& inputs_;
  TokenModel& model_;
  const int32_t eos_id_;
  const SampleOptions& options_;
  int64_t rows_ = 0, width_ = 0;
  SamplingState state_;
  std::vector<int64_t> allowance_;
  std::vector<int32_t> initial_eos_, active_;
};

}  // namespace

Decodes temperature_sample(const Prompts& inputs, TokenModel& model, int32_t eos_id,
                           const SampleOptions& options) {
  return Sampler(inputs, model, eos_id, options).run();
}

}  // namespace quintet::decoding
