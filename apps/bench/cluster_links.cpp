#include "apps/bench/cluster_links.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "kernels/device.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/median.h"
#include "runtime/ops/ops.h"

namespace quintet {
namespace {

constexpr int kRepeats = 7;

/// Of each kind of groups the one that this rank is in: neighbours on a host, one rank of each host, all.
std::vector<std::vector<int>> groups_of(const Comm& comm) {
  std::map<std::string, std::vector<int>> on_host;
  for (int rank = 0; rank < comm.size(); ++rank)
    on_host[comm.hosts()[static_cast<size_t>(rank)]].push_back(rank);
  const std::vector<int>& mine = on_host[comm.hosts()[static_cast<size_t>(comm.rank())]];
  for (const auto& [host, ranks] : on_host)
    QT_CHECK(ranks.size() == mine.size(),
             "bench cluster: host {} has {} ranks, another {}; start as many on each", host,
             ranks.size(), mine.size());
  const auto place = static_cast<size_t>(std::ranges::find(mine, comm.rank()) - mine.begin());
  std::vector<std::vector<int>> groups;
  for (size_t size = 2; size <= mine.size(); ++size)
    if (mine.size() % size == 0) {
      const auto first = mine.begin() + static_cast<std::ptrdiff_t>(place / size * size);
      groups.emplace_back(first, first + static_cast<std::ptrdiff_t>(size));
    }
  if (on_host.size() == 1) return groups;
  std::vector<int> across, all(static_cast<size_t>(comm.size()));
  for (const auto& [host, ranks] : on_host) across.push_back(ranks[place]);
  std::ranges::sort(across);
  groups.push_back(std::move(across));
  std::iota(all.begin(), all.end(), 0);
  if (mine.size() > 1) groups.push_back(std::move(all));
  return groups;
}

struct Kind {
  const char* name;
  /// Of an array of `count` elements in all.
  std::function<Pending(const Group&, const void* from, void* to, int64_t count)> start;
};
const Kind kKinds[] = {
    {"all_reduce", [](const Group& g, const void* from, void* to,
                      int64_t n) { return g.all_reduce(from, to, n, DType::f32); }},
    {"all_gather", [](const Group& g, const void* from, void* to,
                      int64_t n) { return g.all_gather(from, to, n / g.size(), DType::f32); }},
    {"reduce_scatter",
     [](const Group& g, const void* from, void* to, int64_t n) {
       return g.reduce_scatter(from, to, n / g.size(), DType::f32);
     }},
    {"all_to_all", [](const Group& g, const void* from, void* to, int64_t n) {
       return g.all_to_all(from, to, n / g.size(), DType::f32);
     }}};

/// From when the last rank comes to `collective` until the last one goes on, the median. As in training they come from
/// ops and not together: those that wait may sleep, and are woken.
double median_after_ops(Comm& comm, const std::function<void()>& collective) {
  Device& device = Device::current();
  const int64_t size = device.is_cpu() ? 256 : 2048;
  const Tensor x = Tensor::zeros({{{"m", size}, {"k", size}}, DType::f32});
  const Tensor w = Tensor::zeros({{{"k", size}, {"n", size}}, DType::f32});
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats + 1; ++i) {
    comm.world().barrier();
    const auto start = Clock::now();
    ops::matmul(x, w);
    device.synchronize();
    const double come = seconds_since(start);
    collective();
    device.synchronize();
    const double gone = seconds_since(start);
    const std::vector<double> last = slowest(comm, {come, gone});
    if (i > 0) seconds.push_back(last[1] - last[0]);
  }
  return median(std::move(seconds));
}

}  // namespace

std::vector<double> slowest(Comm& comm, std::vector<double> seconds) {
  comm.host()
      .world()
      .all_reduce(seconds.data(), std::ssize(seconds), DType::f64, Reduction::max)
      .wait();
  return seconds;
}

double median_seconds(Comm& comm, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats + 1; ++i) {
    comm.world().barrier();
    const auto start = Clock::now();
    work();
    Device::current().synchronize();
    if (i > 0) seconds.push_back(seconds_since(start));
  }
  return slowest(comm, {median(std::move(seconds))})[0];
}

std::vector<CollectiveTimes> measure_collectives(Comm& comm) {
  Device& device = Device::current();
  const int64_t most = device.is_cpu() ? int64_t{16} << 20 : int64_t{256} << 20;
  const Buffer from = device.memory().allocate(most), to = device.memory().allocate(most);
  device.fill(from.get(), 0, most);
  device.fill(to.get(), 0, most);
  std::vector<CollectiveTimes> times;
  for (const std::vector<int>& ranks : groups_of(comm)) {
    const Group group(&comm, ranks, "measured");
    std::set<std::string> hosts;
    for (const int rank : ranks) hosts.insert(comm.hosts()[static_cast<size_t>(rank)]);
    for (const Kind& kind : kKinds) {
      CollectiveTimes of_kind{
          .collective = kind.name, .ranks = group.size(), .hosts = std::ssize(hosts)};
      for (int64_t bytes = 256; bytes <= most; bytes *= 8) {
        const int64_t count = bytes / 4 / group.size() * group.size();
        if (count == 0) continue;
        const double seconds =
            median_after_ops(comm, [&] { kind.start(group, from.get(), to.get(), count).wait(); });
        of_kind.bytes.push_back(
            static_cast<double>(Traffic::sent(kind.name, 4 * count, group.size())));
        of_kind.seconds.push_back(seconds);
      }
      times.push_back(std::move(of_kind));
    }
  }
  return times;
}

double measure_overlap(Comm& comm) {
  if (comm.size() == 1) return 1;
  Device& device = Device::current();
  const int64_t size = device.is_cpu() ? 384 : 4096, bytes = device.is_cpu() ? 4 << 20 : 64 << 20;
  const Tensor x = Tensor::zeros({{{"m", size}, {"k", size}}, DType::f32});
  const Tensor w = Tensor::zeros({{{"k", size}, {"n", size}}, DType::f32});
  const Buffer from = device.memory().allocate(bytes), to = device.memory().allocate(bytes);
  device.fill(from.get(), 0, bytes);
  const auto send = [&] {
    return comm.world().all_gather(from.get(), to.get(), bytes / 4 / comm.size(), DType::f32);
  };
  const double sending = median_seconds(comm, [&] { send().wait(); });
  const double once = median_seconds(comm, [&] { ops::matmul(x, w); });
  const int calls = std::clamp(static_cast<int>(2 * sending / once), 1, 64);
  const auto compute = [&] {
    for (int i = 0; i < calls; ++i) ops::matmul(x, w);
  };
  const double computing = median_seconds(comm, compute);
  const double both = median_seconds(comm, [&] {
    Pending pending = send();
    compute();
    pending.wait();
  });
  return std::clamp((computing + sending - both) / std::min(computing, sending), 0.0, 1.0);
}

LinkTimes link_times(const CollectiveTimes& all_gather) {
  const size_t last = all_gather.bytes.size() - 1;
  const double hops = std::ceil(std::log2(static_cast<double>(all_gather.ranks)));
  return {.bytes = all_gather.bytes[last] / all_gather.seconds[last],
          .latency = all_gather.seconds.front() / std::max(hops, 1.0)};
}

}  // namespace quintet
