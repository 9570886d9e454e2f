// Cases for skips_test.py, which runs some of them at a time.

#include <gtest/gtest.h>

TEST(Skip, One) { GTEST_SKIP() << "what it needs"; }
TEST(Skip, Other) { GTEST_SKIP() << "what it needs"; }
TEST(Pass, One) {}
TEST(Fail, One) { FAIL(); }
