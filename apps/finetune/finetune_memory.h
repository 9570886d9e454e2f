#pragma once
// Whether a run's step fits the memory, before it begins.

#include <string>

#include "runtime/gin/command_line.h"

namespace quintet {

/// The fewest parts of a batch with which the run of a gin text fits the memory that is free on the device, by
/// the simulation of a step (train_memory.h): a divisor of batch_size. Said on stderr where it is not 1, or
/// where not even single rows fit.
int64_t microbatches_that_fit(const std::string& text, const gin::CommandLine& draft,
                              int64_t batch_size);

}  // namespace quintet
