#pragma once
// The clock for durations and deadlines: it never goes back.
//
//   const auto start = Clock::now();
//   ...
//   const double seconds = seconds_since(start);

#include <chrono>

namespace quintet {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Seconds since a moment that stays the same as long as the machine runs.
inline double now_seconds() { return seconds_since(Clock::time_point()); }

}  // namespace quintet
