#pragma once
// A cluster as a small JSON file describes it, for `quintet plan --cluster=FILE`.
//
//   {"name": "64 A100", "devices": 64, "devices_per_host": 8, "memory_gib": 80,
//    "tflops": 312, "matmul_efficiency": 0.6, "memory_gb_per_s": 2000, "memory_efficiency": 0.85,
//    "op_us": 5, "link_gb_per_s": 200, "link_us": 5, "network_gb_per_s_per_host": 180, "network_us": 15}
//
// What `quintet bench cluster` measured takes the place of these numbers: "ops" {"attention": {"call_us": 9,
// "us_per_gflop": 70, "us_per_gb": 0, "us_per_gexp": 900, "measured": [[2, 0.1, 0, 1.2], ...]}, ...}, the time of an
// op from what it does, and how many times that what calls of so many gflop, gb and gexp took;
// "collectives" [{"collective": "all_gather", "ranks": 8, "hosts": 1, "bytes": [...], "us": [...]}, ...],
// by what a rank sends, in ascending order, of groups with as many ranks on as many hosts.
// "gpu": false says that devices are CPUs, for whose kernels no scratch is planned.
// memory_usable: the rest is for CUDA's context, NCCL's buffers, fragmentation and head room. host_gb_per_s,
// host_memory_gb_per_s: of a device's link to its host, and of the host's memory: an optimizer on the host.
// tflops are of the dtype that the model computes in; efficiencies the part of a data sheet's number
// that is reached; latencies are of one hop: a ring has as many as ranks less one, an all-reduce twice those; of
// NCCL's rings and trees the fastest is taken (cluster.cpp).
// For what others run: "score_passes" of attention that keeps its scores in memory, "overlap" where
// ops hide little of a collective, or nothing.

#include <filesystem>
#include <string>
#include <vector>

#include "apps/plan/layout_step.h"
#include "runtime/base/formats/json.h"

namespace quintet {

/// Of a collective between `ranks` of as many hosts, by the bytes that each sends.
struct CollectiveTimes {
  std::string collective;
  int64_t ranks = 1, hosts = 1;
  std::vector<double> bytes = {}, seconds = {};  // bytes ascend

  /// Between two sizes on their line; beyond the largest at its bandwidth.
  double of(double sent) const;
};

struct Cluster {
  std::string name;
  bool gpu = true;  // devices are GPUs: a plan counts the scratch of their kernels
  int64_t devices = 1, devices_per_host = 1;
  double memory_gib = 0;
  double tflops = 1, matmul_efficiency = 1;
  double memory_gb_per_s = 1, memory_efficiency = 1;
  double op_us = 0;         // of an op, however small
  double score_passes = 0;  // reads and writes of attention's scores in memory; 0: a fused kernel
  double overlap = 1;       // part of a collective's time that ops can hide
  double link_gb_per_s = 1, link_us = 0;
  double network_gb_per_s_per_host = 0, network_us = 0;
  double memory_usable = 0.92;  // part of memory_gib that tensors can have
  double host_gb_per_s =
      25;  // of a device's link to its host; of the host's memory, for all devices:
  double host_memory_gb_per_s = 200;
  OpTimes ops = {};                               // measured
  std::vector<CollectiveTimes> collectives = {};  // measured

  SimulatedJob job() const;
  /// Of a collective of which every rank sends `bytes`. Of the network of a host the ranks of
  /// one group get their share: the other devices of the host send at the same time.
  TransferTime collective_time(std::string_view collective, double bytes,
                               const std::vector<int>& ranks) const;
};

/// Throw usage errors that name the file and the member that is missing, unknown or senseless.
Cluster read_cluster(const std::filesystem::path& file);
Cluster cluster_of(const Json& json);
/// Calls `read`; what is wrong with a file that the user wrote is a usage error.
template <typename F>
auto as_usage(F read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(ExitCode::kUsage, error.what());
  }
}

}  // namespace quintet
