#pragma once
// Ranks whose GPUs compute together, in a job that is divided into such groups.

#include "runtime/mesh/collectives/collectives.h"

namespace quintet {

/// Ranks [first, first + count) of the comm, for data in their devices' memory. All ranks of the job call it, each for
/// its own group: NCCL's communicators are made by all of them together, here. Later a group's collectives are its own;
/// others need not call them.
Group device_group(Comm& comm, int first, int count);

}  // namespace quintet
