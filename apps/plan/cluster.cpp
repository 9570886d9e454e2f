#include "apps/plan/cluster.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "runtime/base/nearest.h"

namespace quintet {
namespace {

/// How many ranks of a group share a host, the most of all hosts; and how many hosts it is on.
std::pair<int64_t, int64_t> spread(const std::vector<int>& ranks, int64_t per_host) {
  std::vector<int64_t> on_host;
  std::pair<int64_t, int64_t> result{0, 0};
  for (const int rank : ranks) {
    const auto host = static_cast<size_t>(rank / per_host);
    if (host >= on_host.size()) on_host.resize(host + 1);
    result.second += on_host[host] == 0;
    result.first = std::max(result.first, ++on_host[host]);
  }
  return result;
}

}  // namespace

double Cluster::collective_seconds(std::string_view collective, double bytes,
                                   const std::vector<int>& ranks) const {
  const auto [together, hosts] = spread(ranks, devices_per_host);
  // A tree in each host, and one of hosts.
  const auto hops = [](int64_t of) { return std::ceil(std::log2(static_cast<double>(of))); };
  const double latency = (hops(together) * link_us + hops(hosts) * network_us) * 1e-6 *
                         (collective == "all_reduce" ? 2 : 1);
  if (hosts == 1) return bytes / (link_gb_per_s * 1e9) + latency;
  const double share = network_gb_per_s_per_host * static_cast<double>(together) /
                       static_cast<double>(devices_per_host);
  const double bandwidth = together > 1 ? std::min(share, link_gb_per_s) : share;
  return bytes / (bandwidth * 1e9) + latency;
}

SimulatedJob Cluster::job() const {
  SimulatedJob job;
  for (int64_t i = 0; i < devices; ++i)
    job.hosts.push_back(fmt::format("host{:06}", i / devices_per_host));
  job.machine = {.flops = tflops * 1e12,
                 .matmul_efficiency = matmul_efficiency,
                 .memory_bytes = memory_gb_per_s * 1e9,
                 .memory_efficiency = memory_efficiency,
                 .op_seconds = op_us * 1e-6,
                 .score_passes = score_passes,
                 .overlap = overlap};
  job.cost = [cluster = *this](std::string_view collective, double bytes,
                               const std::vector<int>& ranks) {
    return cluster.collective_seconds(collective, bytes, ranks);
  };
  job.memory_bytes = static_cast<int64_t>(memory_gib * (1 << 30));
  return job;
}

Cluster cluster_of(const Json& json) {
  Cluster cluster;
  struct Member {
    double* number;
    bool required, part;  // part: at most 1
    bool may_be_zero = false;
  };
  double devices = 0, per_host = 1;
  const std::map<std::string, Member> members = {
      {"devices", {&devices, true, false}},
      {"devices_per_host", {&per_host, false, false}},
      {"memory_gib", {&cluster.memory_gib, true, false}},
      {"tflops", {&cluster.tflops, true, false}},
      {"matmul_efficiency", {&cluster.matmul_efficiency, false, true}},
      {"memory_gb_per_s", {&cluster.memory_gb_per_s, true, false}},
      {"memory_efficiency", {&cluster.memory_efficiency, false, true}},
      {"op_us", {&cluster.op_us, false, false, true}},
      {"link_gb_per_s", {&cluster.link_gb_per_s, true, false}},
      {"link_us", {&cluster.link_us, false, false, true}},
      {"network_gb_per_s_per_host", {&cluster.network_gb_per_s_per_host, false, false}},
      {"network_us", {&cluster.network_us, false, false, true}},
      {"score_passes", {&cluster.score_passes, false, false, true}},
      {"overlap", {&cluster.overlap, false, true, true}}};
  std::vector<std::string> names{"name"};
  for (const auto& [name, member] : members) names.push_back(name);
  as_usage([&] {
    for (const auto& [name, value] : json.members()) {
      if (name == "name") {
        cluster.name = value.as_string();
        continue;
      }
      const auto found = members.find(name);
      QT_CHECK(found != members.end(), "{}: '{}' says nothing about a cluster{}; it has: {}",
               json.path(), name, did_you_mean(name, names), fmt::join(names, ", "));
      const double number = *found->second.number = value.as_double();
      const bool zero = found->second.may_be_zero;
      QT_CHECK(std::isfinite(number) && (zero ? number >= 0 : number > 0) &&
                   (!found->second.part || number <= 1),
               "{}: expected a {} number{}, found {}", value.path(),
               zero ? "non-negative" : "positive", found->second.part ? " up to 1" : "", number);
    }
    for (const auto& [name, member] : members)
      QT_CHECK(!member.required || json.has(name), "{}: '{}' is missing", json.path(), name);
  });
  cluster.devices = static_cast<int64_t>(devices);
  cluster.devices_per_host = static_cast<int64_t>(per_host);
  QT_CHECK(static_cast<double>(cluster.devices) == devices && devices <= 1 << 20 &&
               static_cast<double>(cluster.devices_per_host) == per_host,
           "{}: devices {} and devices_per_host {} must be whole numbers up to {}", json.path(),
           devices, per_host, 1 << 20);
  QT_CHECK(cluster.devices <= cluster.devices_per_host || cluster.network_gb_per_s_per_host > 0,
           "{}: {} devices are on more than one host of {}: 'network_gb_per_s_per_host' is missing",
           json.path(), cluster.devices, cluster.devices_per_host);
  return cluster;
}

Cluster read_cluster(const std::filesystem::path& file) {
  return cluster_of(as_usage([&] { return Json::read(file); }));
}

}  // namespace quintet
