#include "runtime/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace quintet {

Profile*& Profile::current() {
  thread_local Profile* profile = nullptr;
  return profile;
}

void Profile::add(std::string_view name, double seconds, int64_t bytes) {
  auto found = entries_.find(name);
  if (found == entries_.end()) found = entries_.emplace(std::string(name), Entry{}).first;
  found->second.calls += 1;
  found->second.seconds += seconds;
  found->second.bytes += bytes;
}

std::string Profile::table(int64_t steps, double wall_seconds) const {
  std::vector<std::pair<std::string, Entry>> rows(entries_.begin(), entries_.end());
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  double total = 0;
  for (const auto& [name, entry] : rows) total += entry.seconds;
  const auto count = static_cast<double>(steps);
  std::string text = fmt::format("{:<20}{:>9}{:>11}{:>8}{:>9}\n", "op", "calls",
                                 steps == 1 ? "seconds" : "s a step", "share", "GB/s");
  for (const auto& [name, entry] : rows)
    text += fmt::format("{:<20}{:>9.6g}{:>11.4f}{:>7.1f}%{:>9.1f}\n", name,
                        static_cast<double>(entry.calls) / count, entry.seconds / count,
                        100 * entry.seconds / total,
                        static_cast<double>(entry.bytes) / entry.seconds * 1e-9);
  text += fmt::format("{:<20}{:>9}{:>11.4f}\n{:<20}{:>9}{:>11.4f}\n", "all of these", "",
                      total / count, "by the clock", "", wall_seconds / count);
  return text;
}

}  // namespace quintet
