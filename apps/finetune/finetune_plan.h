#pragma once
// What the flags leave open, decided by the examples.

#include "apps/finetune/finetune_data.h"
#include "apps/finetune/finetune_flags.h"

namespace quintet {

struct FinetunePlan {
  int64_t input_length = 512, target_length = 512;  // tokens
  int64_t batch_size = 1, microbatches = 1;
  int64_t steps = 2, warmup_steps = 1, eval_period = 1, eval_steps = 1;
  std::vector<std::string> metrics = {"exact_match"}, labels = {};
  std::string best_metric = "loss";
};

/// For a model of this width. Throws kData for a target that is none of --labels, naming file and line.
FinetunePlan finetune_plan(const FinetuneFlags& flags, const FinetuneData& data, int64_t emb_dim);

/// On stderr: how many examples are cut, validation examples that are training examples, labels that
/// training lacks.
void warn_of_data(const FinetuneData& data, const FinetunePlan& plan);

}  // namespace quintet
