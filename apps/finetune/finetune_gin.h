#pragma once
// The gin file that a `quintet finetune` stands for.

#include <string>

#include "apps/finetune/finetune_model.h"
#include "apps/finetune/finetune_plan.h"

namespace quintet {

/// With a default plan it says what the task is, so that its examples can be read.
std::string finetune_gin(const FinetuneFlags& flags, const FinetuneModel& model,
                         const FinetunePlan& plan);

/// The optimizer's part; `model_class`: as the gin file calls it.
std::string finetune_optimizer_gin(const FinetuneFlags& flags, const FinetuneModel& model,
                                   const std::string& model_class);

/// A text, or a list of them, as gin has it.
std::string gin_repr(const std::string& text);
std::string gin_repr(const std::vector<std::string>& texts);

}  // namespace quintet
