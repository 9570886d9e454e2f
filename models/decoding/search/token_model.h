#pragma once
// What the search algorithms know of a network: it turns one token a row into logits for the next,
// and remembers what came before. A row is one sequence being written: item * decodes + decode.
//
//   StepInput input{.rows = rows, .tokens = tokens, .positions = positions};
//   std::span<float> logits = model.step(input);             // [rows, vocab]
//
// Implemented by TransformerDecoder (models/decoding/cpu/transformer_decoder.h) and by the tests'
// stubs.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/logits/sample_rows.h"
#include "models/decoding/search/select.h"
#include "runtime/base/check.h"
#include "runtime/base/threefry.h"

namespace quintet::decoding {

struct StepInput {
  std::span<const int32_t> rows;       // [n] strictly increasing; others rest
  std::span<const int32_t> tokens;     // [n] read now
  std::span<const int32_t> positions;  // [n] where the token stands in its sequence
  /// [n] the row whose history each row continues (beam search moves sequences between the rows of
  /// an item); empty: its own.
  std::span<const int32_t> sources;
};

/// A beam search (beam_search.h) for a model that runs it by itself; spans live as long as it runs.
struct BeamPlan {
  int64_t items = 0, beams = 0, width = 0;  // width: tokens a sequence has, the first one included
  int64_t steps = 0;                        // at most
  int32_t eos_id = 1;
  std::span<const int32_t> first_tokens;    // [items]
  std::span<const int32_t> forced;          // [items, width]; 0: free
  std::span<const int32_t> prompt_lengths;  // [items] already in the cache
  std::span<const float> penalties;         // by length
  float penalty_at_end = 1;
};
/// What it leaves. Row: item * beams + beam.
struct BeamTrace {
  std::vector<int32_t> steps;            // [items] made
  std::vector<float> live;               // [rows]
  std::vector<FinishedBeam> finished;    // [rows]
  std::vector<int32_t> tokens, parents;  // [steps, rows] what each step wrote after which beam
};

/// A temperature_sample (temperature_sample.h), likewise. Row: item * decodes + decode.
struct SamplePlan {
  int64_t rows = 0, decodes = 0, width = 0;  // width: places a row's sequence has
  int64_t steps = 0;                         // at most
  int32_t eos_id = 1;
  Key rng;
  std::span<const float> temperatures;  // one, or one for each item
  int64_t topk = 0;
  float topp = 0;
  bool rescale_log_probs = true;
  std::span<const int32_t> sequences;     // [rows, width] prompts; 0: free
  std::span<const int32_t> indices;       // [rows] where each begins
  std::span<const int32_t> first_tokens;  // [rows]
  std::span<const int32_t> allowances;    // [rows] tokens each may hold
};
struct SampleTrace {
  std::vector<int32_t> sequences;  // [rows, width]
  std::vector<float> log_probs;    // [rows]
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  virtual int64_t vocab_size() const = 0;
  /// Logits [n, vocab] of the token after each; valid, and the caller's to change, until the next
  /// step.
  virtual std::span<float> step(const StepInput& input) = 0;
  /// The largest logit of each row, for searches that want no more; with `log_sums` RowSummary's
  /// log_sum too. As step, but a GPU need not send the logits.
  virtual std::vector<RowSummary> step_greedily(const StepInput& input, bool log_sums);
  /// A step for searches that only select among its logits, with the values of the candidates;
  /// select_last may be called again with other options. A GPU need not send the logits.
  virtual void step_without_logits(const StepInput& input) { last_logits_ = step(input); }
  virtual std::vector<RowSelection> select_last(const SelectOptions& options);
  /// A whole search without the host between its steps; nothing if this model has no such way.
  virtual std::optional<BeamTrace> run_beams(const BeamPlan&) { return std::nullopt; }
  virtual std::optional<SampleTrace> run_samples(const SamplePlan&) { return std::nullopt; }

 protected:
  /// Logits [n, vocab] of the last step_without_logits.
  virtual std::span<const float> last_logits() { return last_logits_; }

 private:
  std::span<const float> last_logits_;
};

/// What a search returns.
struct Decodes {
  int64_t batch = 0, num_decodes = 0, length = 0;
  std::vector<int32_t> tokens;  // [batch, num_decodes, length], by increasing score: the best last
  std::vector<float> scores;    // [batch, num_decodes]

  std::span<const int32_t> sequence(int64_t item, int64_t decode) const {
    return std::span(tokens).subspan(static_cast<size_t>((item * num_decodes + decode) * length),
                                     static_cast<size_t>(length));
  }
  /// The best sequence of an item and its score.
  std::span<const int32_t> best(int64_t item) const { return sequence(item, num_decodes - 1); }
  float best_score(int64_t item) const {
    return scores[static_cast<size_t>(item * num_decodes + num_decodes - 1)];
  }
};

/// Decoder inputs [batch, length]: zeros, or a prompt that is kept as it is. As in T5X, column 0 is
/// the start token and is not part of the output, which is one to the left.
struct Prompts {
  int64_t batch = 0, length = 0;
  std::span<const int32_t> tokens;

  void check() const {
    QT_CHECK(batch > 0 && length > 0, "decoding: inputs [batch={}, length={}] must not be empty",
             batch, length);
    QT_ASSERT(static_cast<int64_t>(tokens.size()) == batch * length);
  }
  int32_t at(int64_t item, int64_t position) const {
    return tokens[static_cast<size_t>(item * length + position)];
  }
};

/// What T5X writes in place of minus infinity (decoding.py NEG_INF).
inline constexpr float kNegInf = -1.0e7f;

}  // namespace quintet::decoding
