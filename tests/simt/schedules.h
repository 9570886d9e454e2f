#pragma once
// The emulator's schedules that kernels are tested under.

#include <gtest/gtest.h>

#include <vector>

#include "kernels/simt/emulator/emulator.h"
#include "runtime/base/check.h"

namespace quintet::testing {

/// Their seeds. Under the thread sanitizer, where a case takes up to minutes, it is one: fibers
/// take turns on a single thread, and their order makes no difference to it.
#ifdef __SANITIZE_THREAD__
inline const std::vector<uint64_t> kSchedules{0};
#else
inline const std::vector<uint64_t> kSchedules{0, 1, 2};
#endif

/// Calls body() under each, with the kernels of sm_80 and of sm_90, until a check has failed.
template <class Body>
void on_every_schedule(const Body& body, const std::vector<int>& sms = {80, 90}) {
  for (int sm : sms)
    for (uint64_t seed : kSchedules) {
      SCOPED_TRACE(fmt::format("schedule {}, sm_{}", seed, sm));
      emulated::simt::emulator::set_sm(sm);
      emulated::simt::emulator::set_seed(seed);
      body();
      if (::testing::Test::HasFailure()) return;
    }
}

}  // namespace quintet::testing
