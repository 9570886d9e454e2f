#pragma once
// What drawing tokens on a GPU takes; meaning and limits: logits_gpu.h.

#include "kernels/kernel.h"
#include "runtime/base/threefry.h"

namespace quintet {

inline constexpr int64_t kMostTop = 32;             // elements of a row that are listed
inline constexpr int64_t kMostDrawnFrom = 1 << 18;  // tokens of a vocabulary that is drawn from

struct SampleRows {
  DType dtype = DType::f32;  // of the logits: float32 or bfloat16
  const void* logits = nullptr;
  int64_t rows = 0, vocab = 0, stride = 0;  // row i begins at element i * stride
  const int32_t* row_ids = nullptr;         // [rows] which row of the whole batch each is; null: i
  int64_t num_decodes = 1;                  // rows an item
  const float* temperatures = nullptr;      // [1], or [items]; at most 1e-4: greedy; null: greedy
  bool has_one_temperature = true;
  int64_t topk = 0;  // 0: off
  float topp = 0;    // 0: off; not together with topk
  bool rescale_log_probs = true;
  const Key* key = nullptr;  // of this step's draws; not read where all is greedy
  int32_t* tokens = nullptr;
  float* log_probs = nullptr;  // [rows]
};

/// One token wanted of a row: drawn, or a given one's logit.
struct RowDraw {
  int32_t row = -1;    // none: nothing is wanted
  int32_t token = -1;  // given; none: drawn
  float temperature = 1;
  float topp = 0;    // 0: off
  int64_t topk = 0;  // 0: off; before topp
  Key key = {};
};
struct DrawnToken {
  int32_t token = 0;
  float log_prob = 0;  // of what was drawn from, after temperature and cut; a given token's is 0
  float logit = 0;     // as it came
};
struct DrawRows {
  const float* logits = nullptr;  // [rows, vocab]
  int64_t vocab = 0, count = 0;
  const RowDraw* draws = nullptr;  // [count]; several may want tokens of one row
  DrawnToken* drawn = nullptr;     // [count]; those that want nothing are not written
};

/// What drawn tokens make of their rows, and what is kept from step to step. Row: item * decodes + decode.
struct SampleStep {
  int64_t rows = 0, width = 0;
  int32_t eos_id = 1;
  int32_t resting_position = 0;    // of rows that have ended
  const int32_t* drawn = nullptr;  // [rows] sample_gpu's
  const float* drawn_log_probs = nullptr;
  const int32_t* allowances = nullptr;  // [rows] tokens a row may hold, below width - 1
  int32_t* sequences = nullptr;         // [rows, width] prompts, then what was written; 0: free
  int32_t* indices = nullptr;           // [rows] of the token that was read
  int32_t* ended = nullptr;             // [rows]
  int32_t* running = nullptr;           // [1] rows that have not ended; none: the step does nothing
  float* log_probs = nullptr;           // [rows]
  Key* keys = nullptr;                  // [2] of this step's draws; of all that follow
  int32_t *next_tokens = nullptr, *next_positions = nullptr;  // [rows] the network's next input
};

/// The largest elements of each row. top: 1 to kMostTop.
struct TopRows {
  const float* logits = nullptr;  // [rows, vocab]
  int64_t rows = 0, vocab = 0, top = 1;
  float* values = nullptr;     // [rows, top] decreasing
  int32_t* indices = nullptr;  // [rows, top] increasing among equal values; -1 where numbers end
  float* log_sums = nullptr;   // [rows] log(sum(exp(x - values[0])))
};

/// A sequence that may have ended: its score, and where its last token was written.
struct FinishedBeam {
  float score = 0;
  int32_t has_ended = 0;
  int32_t step = -1, parent = 0,
          token = 0;  // the step that wrote it, after beam `parent`; -1: none
};

/// Beam search's step, and what it keeps from step to step. Row: item * beams + beam, beams by
/// increasing score.
struct BeamStep {
  int64_t items = 0, beams = 1, vocab = 0;  // beams: 1 to 16
  int32_t eos_id = 1;
  int32_t resting_position = 0;  // of rows of items that are settled
  // The network's output: logits and their largest elements, top_gpu's.
  const float* logits = nullptr;  // [rows, vocab]
  int64_t top = 1;
  const float* values = nullptr;
  const int32_t* indices = nullptr;
  const float* log_sums = nullptr;
  // What is searched for.
  int64_t width = 0;                        // tokens a sequence has, with the one it starts with
  const int32_t* forced = nullptr;          // [items, width] tokens of prompts; 0: free
  const int32_t* prompt_lengths = nullptr;  // [items] of prompts that the cache holds
  const float* penalties = nullptr;         // by length; at least longest prompt + width + 1
  float penalty_at_end = 1;
  // What is known so far.
  static constexpr int32_t kRunning = 0, kSettled = 1, kFailed = 2;  // failed: too few numbers
  int32_t* states = nullptr;                                         // [items]
  int32_t* steps = nullptr;                                          // [items] made so far
  float* live = nullptr;                                             // [rows] log probabilities
  FinishedBeam* finished = nullptr;                                  // [rows]
  int32_t *written_tokens = nullptr,
          *written_parents = nullptr;  // [width - 1, rows]; parents: beams
  // The network's next input.
  int32_t *next_tokens = nullptr, *next_positions = nullptr, *next_parents = nullptr;  // [rows]
};

}  // namespace quintet
