// Times the kernel of every op case of tests/ops (build target `ops_bench`).
//
//   ops_bench --benchmark_filter=matmul/     GFLOP/s and GB/s from the flops and bytes of the case
//   ops_bench --benchmark_repetitions=9      on a busy machine: read the time of the line *_min

#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "tests/ops/buffers.h"

namespace {

using quintet::testing::OpCase;

void run_case(benchmark::State& state, const OpCase& c) {
  quintet::testing::Prepared prepared = quintet::testing::prepare(c, 0);
  for (auto _ : state) prepared.run(c);
  const auto calls = static_cast<double>(state.iterations());
  const auto rate = [calls](double amount) {
    return benchmark::Counter(amount * calls * 1e-9, benchmark::Counter::kIsRate);
  };
  if (c.flops > 0) state.counters["GFLOP/s"] = rate(c.flops);
  if (c.bytes > 0) state.counters["GB/s"] = rate(c.bytes);
}

double smallest(const std::vector<double>& times) {
  return *std::min_element(times.begin(), times.end());
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  for (const OpCase& c : quintet::testing::all_cases())
    if (c.flops > 0 || c.bytes > 0)
      benchmark::RegisterBenchmark(c.name.c_str(), run_case, c)
          ->Unit(benchmark::kMicrosecond)
          ->UseRealTime()
          ->ComputeStatistics("min", smallest);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
