#include "apps/process/rank_checks.h"

#include <algorithm>
#include <map>

#include "runtime/base/check.h"
#include "runtime/base/formats/crc32c.h"

namespace quintet {
namespace {

constexpr double kMuchLonger = 1.3;   // than the median
constexpr double kNoticeable = 0.01;  // seconds a step: less is noise

/// A block of a tensor: "target/x [0, 8]".
std::string block_of(const StateArray& array) {
  const View& view = array.view;
  return fmt::format("{} [{}]", array.name,
                     fmt::join(view.origin.begin(), view.origin.begin() + view.rank, ", "));
}

uint32_t checksum_of(const StateArray& array) {
  const HostArray copy = host_copy(array);
  return crc32c({reinterpret_cast<const char*>(copy.bytes.data()), copy.bytes.size()});
}

std::string place_of(int member, const Group& ranks) {
  const int rank = ranks.ranks()[static_cast<size_t>(member)];
  return fmt::format("rank {} on {}", rank, ranks.comm()->hosts()[static_cast<size_t>(rank)]);
}

/// What differs, by the checksums of all that hold the block.
std::string two_ranks(const StateArray& array, uint32_t own, const Group& holders) {
  std::vector<uint32_t> all(static_cast<size_t>(holders.size()));
  holders.on_host().all_gather(&own, all.data(), 1, DType::u32).wait();
  const auto other =
      std::find_if(all.begin(), all.end(), [&](uint32_t checksum) { return checksum != all[0]; });
  return fmt::format(
      "{}: {} and {} hold copies that differ (--check_replicas): memory or arithmetic of one of "
      "them "
      "is faulty; the run goes on from its last checkpoint without that host",
      block_of(array), place_of(0, holders),
      place_of(static_cast<int>(other - all.begin()), holders));
}

/// Throws on all ranks what one of them has to say.
void tell_all(const std::string& different, const Group& ranks) {
  int32_t any = different.empty() ? 0 : 1;
  ranks.on_host().all_reduce(&any, 1, DType::i32, Reduction::max).wait();
  if (any == 0) return;
  for (const std::string& text : gather_text(ranks, different))
    QT_CHECK_AS(ExitCode::kPeer, text.empty(), "{}", text);
}

}  // namespace

void check_replicas(const std::vector<StateArray>& state, const Mesh& mesh) {
  if (mesh.size() == 1) return;
  struct Copies {
    std::vector<const StateArray*> arrays;
    std::vector<uint32_t> extremes;  // of each: the largest checksum and the largest complement
  };
  std::map<const Group*, Copies> by_group;
  std::vector<const Group*> order;  // the same on all ranks, as the arrays are
  for (const StateArray& array : state) {
    const Group& holders = mesh.replicas(array.mesh_axes);
    if (holders.size() == 1) continue;
    const uint32_t checksum = checksum_of(array);
    Copies& copies = by_group[&holders];
    if (copies.arrays.empty()) order.push_back(&holders);
    copies.arrays.push_back(&array);
    copies.extremes.insert(copies.extremes.end(), {checksum, ~checksum});
  }
  std::string different;
  for (const Group* holders : order) {
    const auto& [arrays, own] = by_group[holders];
    std::vector<uint32_t> all = own;
    holders->on_host().all_reduce(all.data(), std::ssize(all), DType::u32, Reduction::max).wait();
    for (size_t i = 0; i < arrays.size(); ++i) {
      if (all[2 * i] == ~all[2 * i + 1]) continue;
      different = two_ranks(*arrays[i], own[2 * i], *holders);
      break;
    }
  }
  tell_all(different, mesh.world());
}

void Pace::add(double seconds) {
  if (due()) *this = {};
  ++steps_;
  seconds_ += seconds;
}

std::string Pace::slow_ranks(const Group& ranks) {
  std::vector<double> all(static_cast<size_t>(ranks.size()));
  const double mean = seconds_ / static_cast<double>(steps_);
  ranks.on_host().all_gather(&mean, all.data(), 1, DType::f64).wait();
  std::vector<std::string> hosts;
  for (const int rank : ranks.ranks())
    hosts.push_back(ranks.comm()->hosts()[static_cast<size_t>(rank)]);
  return quintet::slow_ranks(all, hosts);
}

std::string slow_ranks(const std::vector<double>& seconds, const std::vector<std::string>& hosts) {
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[(sorted.size() - 1) / 2];
  std::string names;
  for (size_t rank = 0; rank < seconds.size(); ++rank)
    if (seconds[rank] > std::max(kMuchLonger * median, median + kNoticeable))
      names += fmt::format("{}rank {} on {} ({:.3f} s)", names.empty() ? "" : ", ", rank,
                           hosts[rank], seconds[rank]);
  if (names.empty()) return "";
  return fmt::format(
      "{}: slower than the others, whose own work takes {:.3f} s a step, for {} steps; all wait "
      "for it",
      names, median, Pace::kSteps);
}

}  // namespace quintet
