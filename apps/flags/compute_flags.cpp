#include "apps/flags/compute_flags.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "apps/flags/command_line.h"
#include "apps/flags/help_format.h"
#include "runtime/base/thread.h"
#include "runtime/device/devices.h"

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
  const HelpGroup group(app, "Computation");
  app.add_option("--device", device, "cpu, cuda, cuda:NUMBER, or auto: a GPU if there is one");
  app.add_option("--threads", threads, "OpenMP threads; 0: all, or a rank's share of them")
      ->check(CLI::Range(0, 4096));
}

void ComputeFlags::start() const {
  const int share = share_of_host(), limit = omp_get_thread_limit();
  QT_CHECK(threads <= limit, "--threads={}: OMP_THREAD_LIMIT allows {}", threads, limit);
  int used = omp_get_max_threads();
  if (threads > 0)
    used = threads;
  else if (share > 0 && std::getenv("OMP_NUM_THREADS") == nullptr)
    used = std::min(share, omp_get_num_procs());
  // oneDNN's products count on the threads they ask for: a smaller team leaves parts of them undone.
  omp_set_dynamic(0);
  const int team = std::min(used, limit);
  omp_set_num_threads(team);
  // The library ends the process where it gets no thread; so they are asked for first, then kept.
  if (team > 1) check_threads("to compute (--threads, OMP_NUM_THREADS)", team - 1);
#pragma omp parallel
  { asm volatile(""); }  // an empty region is compiled away, and with it the threads
  use_device(device);
}

}  // namespace quintet
