// Times of ops and collectives that were measured: their fit, their file, and what a plan makes of them.

#include <gtest/gtest.h>

#include <cmath>

#include "apps/bench/cluster_links.h"
#include "apps/bench/cluster_ops.h"
#include "apps/plan/cluster.h"
#include "runtime/base/clock.h"
#include "runtime/mesh/collectives/collectives_threads.h"
#include "tests/harness/refusal.h"

namespace quintet {
namespace {

constexpr const char* kCluster =
    R"({"devices": 4, "devices_per_host": 2, "memory_gib": 1, "tflops": 1, "memory_gb_per_s": 100,
        "link_gb_per_s": 10, "network_gb_per_s_per_host": 8)";

Cluster cluster_with(const std::string& members) {
  return cluster_of(Json::parse(std::string(kCluster) + ", " + members + "}", "my.json"));
}

TEST(OpTimes, AFitFindsTheTimeOfEachPart) {
  const OpTime truth{.call = 2e-6, .flop = 3e-12, .byte = 0, .exponential = 4e-9};
  std::vector<OpSample> samples;
  for (int i = 0; i < 6; ++i) {
    OpSample sample{.calls = 1.0 + i % 3,
                    .cost = {.flops = 1e6 * (1 + i * i),
                             .bytes = 1e5 * (7 - i),
                             .exponentials = 1e3 * (1 + (i * 5) % 7)}};
    sample.seconds = truth.of(sample.cost) + truth.call * (sample.calls - 1);
    samples.push_back(sample);
  }
  const OpTime found = fit_op_time(samples);
  EXPECT_NEAR(found.call, truth.call, 1e-8);
  EXPECT_NEAR(found.flop, truth.flop, 1e-14);
  EXPECT_NEAR(found.byte, 0, 1e-13);
  EXPECT_NEAR(found.exponential, truth.exponential, 1e-11);
}

TEST(OpTimes, NoPartIsNegative) {
  // Less time for more bytes: noise.
  const OpTime found = fit_op_time({{1, {.bytes = 1e3}, 2e-6}, {1, {.bytes = 1e6}, 1e-6}});
  EXPECT_GE(found.byte, 0);
  EXPECT_NEAR(found.call, 1.5e-6,
              1e-8);  // their mean: what took long counts as much as what did not
}

TEST(OpTimes, WorkTakesAsLongAsOnTheSlowestRank) {
  run_threads({.count = 2, .timeout = std::chrono::minutes(1)}, [](Comm& comm) {
    const auto start = Clock::now();
    const double seconds = median_seconds(comm, [&] {
      const auto begin = Clock::now();
      while (comm.rank() == 1 && seconds_since(begin) < 0.01) {
      }
    });
    EXPECT_GE(seconds, 0.01);
    EXPECT_LE(seconds, seconds_since(start));
  });
}

TEST(OpTimes, AClockTakesMeasuredTimesOfOps) {
  const Cluster cluster = cluster_with(
      R"("ops": {"attention": {"call_us": 2, "us_per_gflop": 5, "us_per_gb": 0, "us_per_gexp": 3}})");
  StepClock clock(cluster.job().machine);
  clock.op("attention", {.flops = 1e9, .bytes = 1e9, .exponentials = 2e9});
  EXPECT_NEAR(clock.compute(), (2 + 5 + 6) * 1e-6, 1e-12);
  clock.op("matmul", {.flops = 1e12});  // not measured: of the data sheet
  EXPECT_NEAR(clock.compute(), 13e-6 + 1, 1e-9);
}

TEST(OpTimes, CallsThatDidAboutAsMuchCorrectTheSum) {
  const Cluster cluster = cluster_with(
      R"("ops": {"matmul": {"us_per_gflop": 10, "measured": [[1, 0.5, 0, 3], [1, 0.5, 0, 3], [1e6, 0.5, 0, 0.5]]}})");
  const OpTime& time = cluster.ops.at("matmul");
  EXPECT_NEAR(time.of({.flops = 1e9, .bytes = 5e8}), 30e-6, 0.1e-6);
  EXPECT_NEAR(time.of({.flops = 1e15, .bytes = 5e8}), 5, 0.1);
  EXPECT_NEAR(time.of({.flops = 1e12, .bytes = 5e8}), 10e-3 * std::cbrt(3 * 3 * 0.5), 1e-5);
}

TEST(OpTimes, CollectivesTakeWhatGroupsOfTheirSizeTook) {
  const Cluster cluster = cluster_with(
      R"("overlap": 0.25,
         "collectives": [{"collective": "all_gather", "ranks": 2, "hosts": 1, "bytes": [100, 1100, 2100], "us": [10, 20, 60]}])");
  const auto time = [&](double bytes) {
    return cluster.collective_time("all_gather", bytes, {0, 1});
  };
  EXPECT_NEAR(time(50).seconds, 10e-6, 1e-12);
  EXPECT_NEAR(time(600).seconds, 15e-6, 1e-12);
  EXPECT_NEAR(time(1600).seconds, 40e-6, 1e-12);
  EXPECT_NEAR(time(4100).seconds, 140e-6, 1e-12);   // at the bandwidth of the last two
  EXPECT_NEAR(time(600).busy, 0.75 * 5e-6, 1e-12);  // what no byte takes is hidden
  // Another group: of the links' numbers.
  EXPECT_NEAR(cluster.collective_time("all_gather", 8e9, {0, 2}).seconds, 2, 1e-9);
}

TEST(OpTimes, WhatIsWrongWithMeasuredTimesIsNamed) {
  const auto message = [](const std::string& members) {
    return refusal([&] { cluster_with(members); });
  };
  EXPECT_NE(message(R"("ops": {"matmul": {"us": 1}})").find("ops.matmul.us: expected call_us"),
            std::string::npos);
  for (const char* call : {"[1, 1, 1]", "[1, 1, 1, 0]", "[1, -1, 1, 1]"})
    EXPECT_NE(message(fmt::format(R"("ops": {{"matmul": {{"measured": [{}]}}}})", call))
                  .find("ops.matmul.measured[0]: expected [gflop, gb, gexp, factor]"),
              std::string::npos)
        << call;
  EXPECT_NE(message(R"("ops": {"matmul": {"call_us": -1}})").find("non-negative"),
            std::string::npos);
  for (const char* times : {R"("bytes": [2, 1], "us": [1, 2])", R"("bytes": [1], "us": [1, 2])",
                            R"("bytes": [], "us": [])", R"("bytes": [1], "us": [-1])"})
    EXPECT_NE(
        message(
            fmt::format(R"("collectives": [{{"collective": "send", "ranks": 2, "hosts": 1, {}}}])",
                        times))
            .find("ascending order"),
        std::string::npos)
        << times;
}

}  // namespace
}  // namespace quintet
