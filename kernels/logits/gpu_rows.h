#pragma once
// What drawing tokens on a GPU takes; meaning and limits: logits_gpu.h.

#include "kernels/kernel.h"
#include "runtime/base/threefry.h"

namespace quintet {

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

/// The largest elements of each row. top: 1 to 32.
struct TopRows {
  const float* logits = nullptr;  // [rows, vocab]
  int64_t rows = 0, vocab = 0, top = 1;
  float* values = nullptr;      // [rows, top] decreasing
  int32_t* indices = nullptr;   // [rows, top] increasing among equal values; -1 where numbers end
  float* log_sums = nullptr;    // [rows] log(sum(exp(x - values[0])))
};

}  // namespace quintet
