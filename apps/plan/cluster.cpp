#include "apps/plan/cluster.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <vector>

#include "kernels/simt/host/product_workspace.h"
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

/// How a collective can run: hops that follow each other, other microseconds, the part of the bandwidth that
/// it reaches.
struct Algorithm {
  double link_hops, network_hops, us = 0, bandwidth = 1;
};

/// NCCL's, of which it takes the fastest. A ring passes every rank, and the network between neighbouring hosts;
/// an all-reduce goes round twice, or up and down a tree of hosts with a chain in each. A gather or scatter
/// between single ranks of hosts also has PAT (NCCL 2.23): a tree that NCCL itself reckons with three quarters of
/// the bandwidth and 2.8 us a rank. What else there is takes a tree's hops.
std::vector<Algorithm> algorithms_for(std::string_view collective, int64_t ranks, int64_t together,
                                      int64_t hosts) {
  const auto log2 = [](int64_t of) { return std::ceil(std::log2(static_cast<double>(of))); };
  const auto in_host = static_cast<double>(together - 1), n = static_cast<double>(ranks),
             h = static_cast<double>(hosts);
  if (collective == "all_reduce")
    return {{2 * (n - h), 2 * (h - 1)}, {2 * in_host, 2 * log2(hosts), 0, 0.9}};
  if (collective != "all_gather" && collective != "reduce_scatter")
    return {{log2(together), log2(hosts)}};
  std::vector<Algorithm> all{{n - h, h - 1}};
  if (together == 1) all.push_back({0, log2(hosts), 2.8 * n, 0.75});
  return all;
}

}  // namespace

double CollectiveTimes::of(double sent) const {
  if (bytes.size() < 2 || sent <= bytes.front()) return seconds.front();
  const auto end = std::upper_bound(bytes.begin() + 1, bytes.end() - 1, sent);
  const auto i = static_cast<size_t>(end - bytes.begin());
  const double slope = (seconds[i] - seconds[i - 1]) / (bytes[i] - bytes[i - 1]);
  return seconds[i - 1] + std::max(slope, 0.0) * (sent - bytes[i - 1]);
}

TransferTime Cluster::collective_time(std::string_view collective, double bytes,
                                      const std::vector<int>& ranks) const {
  const auto [together, hosts] = spread(ranks, devices_per_host);
  for (const CollectiveTimes& times : collectives)
    if (times.collective == collective && times.hosts == hosts &&
        times.ranks == std::ssize(ranks)) {
      const double seconds = times.of(bytes);  // what no byte takes, ops can always hide
      return {seconds, (1 - overlap) * (seconds - times.seconds.front())};
    }
  double gb_per_s = link_gb_per_s;
  if (hosts > 1) {
    const double share = network_gb_per_s_per_host * static_cast<double>(together) /
                         static_cast<double>(devices_per_host);
    gb_per_s = together > 1 ? std::min(share, link_gb_per_s) : share;
  }
  double seconds = std::numeric_limits<double>::infinity();
  for (const Algorithm& algorithm : algorithms_for(collective, std::ssize(ranks), together, hosts))
    seconds = std::min(seconds, bytes / (algorithm.bandwidth * gb_per_s * 1e9) +
                                    (algorithm.link_hops * link_us +
                                     algorithm.network_hops * network_us + algorithm.us) *
                                        1e-6);
  return {seconds, (1 - overlap) * seconds};
}

SimulatedJob Cluster::job() const {
  SimulatedJob job;
  for (int64_t i = 0; i < devices; ++i)
    job.hosts.push_back(fmt::format("host{:06}", i / devices_per_host));
  job.machine = {
      .flops = tflops * 1e12,
      .matmul_efficiency = matmul_efficiency,
      .memory_bytes = memory_gb_per_s * 1e9,
      .memory_efficiency = memory_efficiency,
      .op_seconds = op_us * 1e-6,
      .score_passes = score_passes,
      .host_link_bytes = host_gb_per_s * 1e9,
      .host_memory_bytes = host_memory_gb_per_s * 1e9 / static_cast<double>(devices_per_host),
      .ops = ops};
  job.cost = [cluster = *this](std::string_view collective, double bytes,
                               const std::vector<int>& ranks) {
    return cluster.collective_time(collective, bytes, ranks);
  };
  if (network_gb_per_s_per_host > 0)
    job.network_cost = std::max(
        1.0, link_gb_per_s * static_cast<double>(devices_per_host) / network_gb_per_s_per_host);
  job.is_gpu = gpu;
  job.workspace = gpu ? kProductWorkspace : 0;
  job.memory_bytes = static_cast<int64_t>(memory_gib * memory_usable * (1 << 30));
  return job;
}

namespace {

double not_negative(const Json& value) {
  const double number = value.as_double();
  QT_CHECK(std::isfinite(number) && number >= 0, "{}: expected a non-negative number, found {}",
           value.path(), number);
  return number;
}

OpTime::Measured measured_call(const Json& json) {
  const std::vector<double> numbers = json.as_doubles();
  const auto is_good = [](double number) { return std::isfinite(number) && number >= 0; };
  QT_CHECK(
      numbers.size() == 4 && std::all_of(numbers.begin(), numbers.end(), is_good) && numbers[3] > 0,
      "{}: expected [gflop, gb, gexp, factor], none negative and a factor above 0", json.path());
  return {{.flops = numbers[0] * 1e9, .bytes = numbers[1] * 1e9, .exponentials = numbers[2] * 1e9},
          numbers[3]};
}

OpTimes op_times(const Json& json) {
  OpTimes ops;
  for (const auto& [name, parts] : json.members()) {
    OpTime& time = ops[name];
    const std::map<std::string, std::pair<double*, double>> members = {
        {"call_us", {&time.call, 1e-6}},
        {"us_per_gflop", {&time.flop, 1e-15}},
        {"us_per_gb", {&time.byte, 1e-15}},
        {"us_per_gexp", {&time.exponential, 1e-15}}};
    for (const auto& [part, value] : parts.members()) {
      if (part == "measured") {
        for (const Json& call : value.items()) time.measured.push_back(measured_call(call));
        continue;
      }
      const auto found = members.find(part);
      QT_CHECK(found != members.end(),
               "{}: expected call_us, us_per_gflop, us_per_gb, us_per_gexp, measured",
               value.path());
      *found->second.first = not_negative(value) * found->second.second;
    }
  }
  return ops;
}

CollectiveTimes collective_times(const Json& json) {
  CollectiveTimes times{.collective = json["collective"].as_string(),
                        .ranks = json["ranks"].as_int(),
                        .hosts = json["hosts"].as_int(),
                        .bytes = json["bytes"].as_doubles(),
                        .seconds = json["us"].as_doubles()};
  for (double& us : times.seconds) us *= 1e-6;
  const auto is_time = [](double second) { return std::isfinite(second) && second >= 0; };
  QT_CHECK(!times.bytes.empty() && times.bytes.size() == times.seconds.size() &&
               std::is_sorted(times.bytes.begin(), times.bytes.end(), std::less_equal()) &&
               std::all_of(times.seconds.begin(), times.seconds.end(), is_time),
           "{}: expected bytes in ascending order and us, as many", json.path());
  return times;
}

/// A member that is no number; false: it is none of these.
bool read_other(const std::string& name, const Json& value, Cluster& cluster) {
  if (name == "name")
    cluster.name = value.as_string();
  else if (name == "gpu")
    cluster.gpu = value.as_bool();
  else if (name == "ops")
    cluster.ops = op_times(value);
  else if (name == "collectives")
    for (const Json& times : value.items()) cluster.collectives.push_back(collective_times(times));
  else
    return false;
  return true;
}

}  // namespace

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
      {"memory_usable", {&cluster.memory_usable, false, true}},
      {"host_gb_per_s", {&cluster.host_gb_per_s, false, false, true}},
      {"host_memory_gb_per_s", {&cluster.host_memory_gb_per_s, false, false}},
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
  std::vector<std::string> names{"collectives", "gpu", "name", "ops"};
  for (const auto& [name, member] : members) names.push_back(name);
  as_usage([&] {
    for (const auto& [name, value] : json.members()) {
      if (read_other(name, value, cluster)) continue;
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
