#include "apps/compute_flags.h"

#include <omp.h>

#include "apps/cli.h"
#include "runtime/devices.h"

namespace quintet {

void ComputeFlags::add_to(CLI::App& app) {
  app.add_option("--device", device, "cpu, cuda, cuda:NUMBER, or auto: a GPU if there is one");
  app.add_option("--threads", threads, "OpenMP threads; 0: all")->check(CLI::Range(0, 4096));
}

void ComputeFlags::start() const {
  if (threads > 0) omp_set_num_threads(threads);
  use_device(device);
}

}  // namespace quintet
