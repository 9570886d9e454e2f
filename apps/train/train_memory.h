#pragma once
// What training takes of a machine's memory, worked out before it begins.

#include "apps/config/gin_session.h"
#include "apps/config/train_config.h"
#include "apps/process/memory_limit.h"

namespace quintet {

/// What a run of one rank on processors takes at most, beyond what the process has now: a step on
/// an abstract device (abstract_device.h), the copy that is saved, threads, libraries. `session`: that of
/// `config`, which makes the model anew; `readers`: threads that preprocess. No tensors where the step
/// cannot be worked out.
MemoryNeed training_need(GinSession& session, const TrainConfig& config, int readers);

}  // namespace quintet
