#pragma once
// Low-rank adapters (LoRA, arXiv:2106.09685): a model's parameters are frozen, and matrices A [in, rank] and B
// [rank, out] beside some dense kernels W are trained: x W + alpha / rank dropout(x) A B.
//
//   add_adapters(model, {.rank = 8, .alpha = 16});   // declares .../query/lora_a, .../query/lora_b

#include "models/base_model.h"

namespace quintet {

/// gin: lora.LoraConfig.
struct LoraConfig {
  int64_t rank = 8;
  double alpha = 16;
  double dropout_rate = 0;  // of the input of A
  /// Of the frozen dense kernels of layers in memory: float32, bfloat16, or in 8 bits, with a scale a column, int8 or
  /// fp8 (E4M3).
  std::string base_dtype = "float32";
  /// Expressions that are found in /NAME of the dense kernels of layers.
  std::vector<std::string> targets = {"/query/kernel$", "/value/kernel$"};
};

/// Before parameters have values. A begins as PEFT's, uniform with the variance 1 / (3 in), B with zeros. Throws a
/// usage error for numbers out of range, a target that no kernel has, and a model with layers of its own.
void add_adapters(BaseModel& model, const LoraConfig& config);

}  // namespace quintet
