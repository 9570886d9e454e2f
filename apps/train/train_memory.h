#pragma once
// What training takes of a machine's memory, worked out before it begins.

#include <functional>

#include "apps/config/train_config.h"
#include "apps/plan/layout_step.h"
#include "apps/process/memory_limit.h"

namespace quintet {

/// What a run of one rank on processors takes at most, beyond what the process has now: a step on
/// an abstract device (abstract_device.h), the copy that is saved, threads, libraries. `make`: the model
/// and its optimizer anew; `readers`: threads that preprocess. No tensors where the step cannot be
/// worked out.
MemoryNeed training_need(const TrainConfig& config, const std::function<ModelAndOptimizer()>& make,
                         int readers);

}  // namespace quintet
