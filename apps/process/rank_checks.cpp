#include "apps/process/rank_checks.h"

#include <algorithm>
#include <map>
#include <sstream>

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

std::string place_of(int rank, const Group& ranks) {
  return fmt::format(
      "rank {} on {}", rank,
      ranks.comm()->hosts()[static_cast<size_t>(ranks.ranks()[static_cast<size_t>(rank)])]);
}

}  // namespace

void check_replicas(const std::vector<StateArray>& state, const Group& ranks) {
  if (ranks.size() == 1) return;
  std::string own;
  for (const StateArray& array : state)
    own += fmt::format("{:08x} {}\n", checksum_of(array), block_of(array));
  std::map<std::string, std::pair<int, std::string>> known;  // block -> rank and its checksum
  int rank = 0;
  for (const std::string& text : gather_text(ranks, own)) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const std::string checksum = line.substr(0, 8), block = line.substr(9);
      const auto [first, added] = known.try_emplace(block, rank, checksum);
      QT_CHECK_AS(
          ExitCode::kPeer, first->second.second == checksum,
          "{}: {} and {} hold copies that differ (--check_replicas): memory or arithmetic of "
          "one of them is faulty; the run goes on from its last checkpoint without that host",
          block, place_of(first->second.first, ranks), place_of(rank, ranks));
    }
    ++rank;
  }
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
