#pragma once
// Ranks with a GPU each: NCCL between the GPUs, bootstrapped through the ranks' comm over MPI, in a
// stream of its own beside the device's.

#include <memory>
#include <string>

#include "runtime/mesh/collectives/collectives.h"

namespace quintet {

class Watchdog;

/// The GPU of this process, different from every other GPU of the host.
std::string gpu_identity();

/// `host`: the same ranks in ordinary memory. The watchdog sees every collective until it is done on
/// the device; an error of NCCL's own ends the job too.
std::unique_ptr<Comm> open_nccl(std::unique_ptr<Comm> host, Watchdog& watchdog, Device& device);

}  // namespace quintet
