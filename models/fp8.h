#pragma once
// Training in 8-bit floating point, as Transformer Engine does it: the products of attention's query, key, value and out and
// of MLPs are those of kernels/fp8; logits, attention's scores, routers and experts are not, nor is anything outside training.
//
//   use_fp8(model, {.enabled = true});   // before the trainer is made

#include "models/base_model.h"
#include "runtime/trainer/fp8_state.h"

namespace quintet {

/// gin: te_helper.TransformerEngineConfig, by the names of T5X's fork at NVIDIA (Rosetta), and the last three.
struct TransformerEngineConfig {
  bool enabled = false;
  std::string fp8_format = "fp8_hybrid";  // E4M3, gradients E5M2; "fp8_e4m3": E4M3 throughout
  double margin = 0;                      // scales are divided by 2^margin
  int64_t amax_history_len = 1024;
  std::string amax_compute_algo = "max";  // of the history, or "most_recent"
  std::string scaling = "delayed";        // or "current": scales of each operand's own, no history
  bool fused_casts = true;  // norms and activations leave FP8 operands (fp8_scales() in layers.h)
};

/// Throws a usage error for values that it does not know.
Fp8Recipe recipe_of(const TransformerEngineConfig& config);

/// Marks the layers of a model; without `enabled` none. -> TrainerOptions::fp8. Throws a usage error naming the layer whose sizes do not fit, the
/// device without such products, adapters, and a model with layers of its own.
Fp8Recipe use_fp8(BaseModel& model, const TransformerEngineConfig& config);

}  // namespace quintet
