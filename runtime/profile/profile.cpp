#include "runtime/profile/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace quintet {

void Profile::add(std::string_view name, double seconds, int64_t bytes, double flops) {
  auto found = entries_.find(name);
  if (found == entries_.end()) found = entries_.emplace(std::string(name), Entry{}).first;
  found->second.calls += 1;
  found->second.seconds += seconds;
  found->second.bytes += bytes;
  found->second.flops += flops;
}

std::string Profile::table(int64_t steps, double wall_seconds) const {
  std::vector<std::pair<std::string, Entry>> rows(entries_.begin(), entries_.end());
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  Entry all;
  for (const auto& [name, entry] : rows) {
    all.seconds += entry.seconds;
    all.flops += entry.flops;
  }
  const auto count = static_cast<double>(steps);
  const auto rate = [](double flops, double seconds) {
    return flops == 0 ? "" : fmt::format("{:.1f}", flops / seconds * 1e-9);
  };
  std::string text = fmt::format("{:<20}{:>9}{:>11}{:>8}{:>9}{:>9}\n", "op", "calls",
                                 steps == 1 ? "seconds" : "s a step", "share", "GB/s", "GFLOP/s");
  for (const auto& [name, entry] : rows)
    text += fmt::format("{:<20}{:>9.6g}{:>11.4f}{:>7.1f}%{:>9.1f}{:>9}\n", name,
                        static_cast<double>(entry.calls) / count, entry.seconds / count,
                        100 * entry.seconds / all.seconds,
                        static_cast<double>(entry.bytes) / entry.seconds * 1e-9,
                        rate(entry.flops, entry.seconds));
  for (const auto& [what, seconds] :
       {std::pair("all of these", all.seconds), std::pair("by the clock", wall_seconds)})
    text += fmt::format("{:<20}{:>9}{:>11.4f}{:>26}\n", what, "", seconds / count,
                        rate(all.flops, seconds));
  return text;
}

}  // namespace quintet
