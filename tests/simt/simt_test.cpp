// Every primitive in the emulator against a plain computation, under many schedules; kernels broken
// on purpose must be seen.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/simt/emulator/emulator.h"
#include "tests/simt/case.h"
#include "tests/simt/compare.h"

QT_SIMT_TEST_CASES(emulated)

namespace quintet {
namespace {

using simt_test::Case;
constexpr uint64_t kSeeds = 12;

class Simt : public testing::TestWithParam<Case> {};

TEST_P(Simt, HealthyUnderEverySchedule) {
  const Case& c = GetParam();
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    emulated::simt::emulator::set_seed(seed);
    const auto got = c.run(0);
    EXPECT_EQ(simt_test::difference(c, got), "");
  }
}

TEST_P(Simt, BrokenIsSeen) {
  const Case& c = GetParam();
  for (size_t fault = 1; fault <= c.faults.size(); ++fault) {
    int seen = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      emulated::simt::emulator::set_seed(seed);
      try {
        seen += simt_test::difference(c, c.run(static_cast<int>(fault))).empty() ? 0 : 1;
      } catch (const std::exception&) {
        ++seen;
      }
    }
    EXPECT_GT(seen, 0) << c.faults[fault - 1] << ": not seen under any of " << kSeeds << " seeds";
    RecordProperty(c.faults[fault - 1], seen);
    if (std::getenv("QUINTET_SIMT_VERBOSE")) {
      printf("  %-50s seen under %d of %d seeds\n", c.faults[fault - 1].c_str(), seen,
             static_cast<int>(kSeeds));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Simt, testing::ValuesIn(emulated::simt_cases()),
                         [](const auto& the) { return simt_test::identifier(the.param.name); });

}  // namespace
}  // namespace quintet
