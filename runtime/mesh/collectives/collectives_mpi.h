#pragma once
// Ranks that are processes under mpirun or srun.
//
//   mpi::Session session;
//   const auto comm = open_mpi(session, Device::current(), {.timeout_seconds = 600});
//   Mesh mesh({{"data", 2}, {"model", 2}}, comm.get());

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/mesh/collectives/collectives.h"
#include "runtime/mpi/session.h"

namespace quintet {

struct MpiOptions {
  double timeout_seconds = 600;          // of a collective (--collective_timeout); 0: for ever
  std::function<bool()> signalled = {};  // whether this process was asked to stop by a signal
  int init_timeout = 1800;  // seconds that NCCL may take to start (--init_timeout); 0: for ever
  bool share_gpus = false;  // ranks of one GPU are meant (--share_gpus), not a launcher's mistake
};

/// Whether ranks talk by NCCL: several have a GPU, and each its own. `gpus`: each rank's, "" where it
/// has none, as data ranks. Throws a usage error that names two ranks of one GPU unless they may share.
bool each_has_its_gpu(const std::vector<std::string>& gpus, bool share_gpus);

/// Called by all ranks of an active session. Ranks with a GPU each talk by NCCL where the build has
/// it; others, also where they share a GPU, through ordinary memory. The comm carries what lies in `device`'s memory; it
/// and its channels (three at most) must be gone before the session ends. A rank that is dead or
/// hangs ends the job with exit code 6 and a message on stderr.
std::unique_ptr<Comm> open_mpi(const mpi::Session& session, Device& device,
                               MpiOptions options = {});

/// The libraries that carry what lies in the device's memory: "Open MPI v4.1.4, NCCL 2.21.5"; of an
/// active session. Throws Error(kEnvironment) where NCCL is needed and missing.
std::string carriers_of(const Device& device);

/// A comm of one rank, for a process that no launcher started.
std::unique_ptr<Comm> open_single(Device& device);

}  // namespace quintet
