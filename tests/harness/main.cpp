// main() of the GoogleTest programs. A program that checked nothing does not pass: it ends with 77, which
// ctest counts as skipped, if all of its cases said GTEST_SKIP, and with 1 if its filter picks none.

#include <gtest/gtest.h>

#include <cstdio>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  const auto& tests = *testing::UnitTest::GetInstance();
  if (failed != 0 || GTEST_FLAG_GET(list_tests)) return failed;
  if (tests.test_to_run_count() == 0) {
    std::puts("no test has a name that the filter picks");
    return 1;
  }
  return tests.skipped_test_count() == tests.test_to_run_count() ? 77 : 0;
}
