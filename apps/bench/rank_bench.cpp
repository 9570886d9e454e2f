#include "apps/bench/rank_bench.h"

#include <fmt/ranges.h>
#include <omp.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <chrono>

#include "kernels/device.h"
#include "runtime/base/check.h"
#include "runtime/mesh/collectives/collectives_threads.h"

namespace quintet {

void RankBench::add_to(CLI::App& app) {
  app.add_option("--ranks", asked_, "threads of this process; default: 1, under mpirun its ranks")
      ->check(CLI::Range(1, 64));
  flags_.add_to(app);
}

void RankBench::start(const std::string& bench, const std::vector<std::string>& args,
                      const ComputeFlags& compute) {
  processes_ = std::make_unique<Ranks>(flags_);
  processes_->agree_on("command line", fmt::format("{}", fmt::join(args, "\n")));
  const int started = processes_->session().size();
  QT_CHECK(are_threads() || asked_ == 0 || asked_ == started,
           "bench {}: --ranks={}, but mpirun started {}; leave --ranks away", bench, asked_,
           started);
  size_ = are_threads() ? std::max(asked_, 1) : started;
  compute.start();
  QT_CHECK(!are_threads() || size_ == 1 || Device::current().is_cpu(),
           "bench {}: ranks that are threads run on the CPU; use mpirun, or --device=cpu", bench);
  processes_->open(Device::current());
}

void RankBench::run(const std::function<void(Comm&)>& body) const {
  if (processes_->comm() != nullptr) return body(*processes_->comm());
  const int all = omp_get_max_threads();
  run_threads({.count = size_, .timeout = std::chrono::hours(1)}, [&](Comm& comm) {
    omp_set_num_threads(std::max(1, all / size_));
    body(comm);
  });
}

std::string RankBench::carrier() const { return are_threads() ? "threads" : "processes"; }

}  // namespace quintet
