#pragma once
// Tests wait for what they need, not for a time in which it may have happened. The only other sleeps
// (scripts/check_sleeps.py) are delays that are the test: a slow disk, a rank that comes late.
//
//   ASSERT_TRUE(wait_for([&] { return server.connections() == 0; }));

#include <chrono>
#include <thread>

namespace quintet::testing {

/// Asks every millisecond; false if `condition` has not come true within `limit`.
template <typename Condition>
bool wait_for(const Condition& condition, std::chrono::seconds limit = std::chrono::seconds(60)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace quintet::testing
