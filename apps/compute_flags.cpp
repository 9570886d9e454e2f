#include "apps/compute_flags.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "apps/cli.h"
#include "runtime/devices.h"

namespace quintet {
namespace {

/// Processors a rank, where mpirun or srun started several on this host; 0: no launcher did.
int share_of_host() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"})
    if (const char* ranks = std::getenv(name))
      return std::max(
          1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)) / std::max(1, std::atoi(ranks)));
  return 0;
}

}  // namespace

void ComputeFlags::add_to(CLI::App& app) {
  app.add_option("--device", device, "cpu, cuda, cuda:NUMBER, or auto: a GPU if there is one");
  app.add_option("--threads", threads, "OpenMP threads; 0: all, or a rank's share of them")
      ->check(CLI::Range(0, 4096));
}

void ComputeFlags::start() const {
  const int share = share_of_host();
  if (threads > 0)
    omp_set_num_threads(threads);
  else if (share > 0 && std::getenv("OMP_NUM_THREADS") == nullptr)
    omp_set_num_threads(std::min(share, omp_get_num_procs()));
  use_device(device);
}

}  // namespace quintet
