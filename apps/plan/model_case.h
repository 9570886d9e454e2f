#pragma once
// T5 models of published sizes by name, and training steps of them on random batches: what `quintet bench`
// times and `quintet plan` works out.

#include <string>

#include "apps/flags/lora_flags.h"
#include "apps/plan/layout_step.h"
#include "models/base_model.h"

namespace CLI {
class App;
}

namespace quintet {

/// A model and the size of its batches.
struct ModelCase {
  std::string model = "t5_1_1_small";
  int64_t batch = 8, inputs = 256, targets = 64;
  std::string dtype = "float32";
  LoraFlags lora = {};
  bool fp8 = false;  // dense layers train in 8-bit floating point (models/fp8.h)
};

/// --model, --batch, --inputs, --targets; if it `trains`, --fp8.
void add_model_flags(CLI::App& app, ModelCase& options, bool trains = true);

/// Sizes of t5_1_1_{tiny,small,base,large,xl,xxl}, switch_base_{8,64} and of published runs, without dropout; an unknown name is a usage error.
T5Config published_model_config(const std::string& name, const std::string& dtype = "float32");

/// Ids from 3 to the vocabulary's size, spread out.
HostArray random_tokens(int64_t rows, int64_t length, int64_t vocab_size, uint32_t seed);

/// Model features of an encoder-decoder: random tokens from 3 to vocabulary size, no padding.
HostArrays random_batch(const ModelCase& options, int64_t vocab_size);

/// Training with AdamW: the model with random parameters, random batches.
LayoutCase layout_case(const ModelCase& options);
LayoutCase layout_case(const T5Config& config, const ModelCase& options);

}  // namespace quintet
