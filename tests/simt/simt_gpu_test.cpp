// The same cases on a GPU, against the plain computation and against the emulator.

#include <gtest/gtest.h>

#include "kernels/simt/emulator/emulator.h"
#include "tests/simt/case.h"
#include "tests/simt/compare.h"

QT_SIMT_TEST_CASES(emulated)
QT_SIMT_TEST_CASES(cuda)

namespace quintet::cuda {
/// 10 * major + minor of the first device that answers; 0: none.
int capability_of_gpu();
}  // namespace quintet::cuda

namespace quintet {
namespace {

using simt_test::Case;

class SimtGpu : public testing::TestWithParam<size_t> {};

TEST_P(SimtGpu, AsComputedAndAsEmulated) {
  static const int capability = cuda::capability_of_gpu();
  static const auto real_cases = cuda::simt_cases();
  static const auto emulated_cases = emulated::simt_cases();
  const Case& real = real_cases[GetParam()];
  const Case& emulated = emulated_cases[GetParam()];
  ASSERT_EQ(real.name, emulated.name);
  if (capability == 0) GTEST_SKIP() << "no GPU answers";
  // wgmma is in no family but Hopper's; the rest of sm_90 is tested with it.
  if (real.sm > 80 && capability != 90) GTEST_SKIP() << "a GPU of capability " << capability;
  const auto got = real.run(0);
  EXPECT_EQ(simt_test::difference(real, got), "");
  emulated::simt::emulator::set_seed(1);
  EXPECT_EQ(simt_test::difference(emulated.run(0), got, real.tolerance), "")
      << "against the emulator";
}

INSTANTIATE_TEST_SUITE_P(Cases, SimtGpu, testing::Range(size_t{0}, emulated::simt_cases().size()),
                         [](const auto& the) {
                           return simt_test::identifier(emulated::simt_cases()[the.param].name);
                         });

}  // namespace
}  // namespace quintet
