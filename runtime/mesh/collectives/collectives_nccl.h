#pragma once
// Ranks with a GPU each: NCCL between the GPUs, bootstrapped through the ranks' comm over MPI, in a
// stream of its own beside the device's.

#include <memory>
#include <string>
#include <vector>

#include "runtime/mesh/collectives/collectives.h"

namespace quintet {

class Watchdog;

/// The GPU of this process, different from every other GPU of the host.
std::string gpu_identity();

/// Of the library that is loaded: "2.21.5".
std::string nccl_version();

struct NcclOptions {
  std::vector<int> ranks = {};  // of the comm: those that have a GPU
  double init_timeout = 1800;   // seconds that a communicator may take to be made; 0: for ever
};

/// `host`: the same ranks in ordinary memory. The watchdog sees every collective from before its launch
/// until it is done on the device; an error of NCCL's or CUDA's own ends the job too. Communicators do
/// not block: one of all GPUs, of which those of a mesh's axes are split. Every 16 steps ranks compare
/// which collectives they called.
std::unique_ptr<Comm> open_nccl(std::unique_ptr<Comm> host, Watchdog& watchdog, Device& device,
                                NcclOptions options);

}  // namespace quintet
