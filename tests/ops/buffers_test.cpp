// The buffers of the op cases notice what they are there to notice.

#include "tests/ops/buffers.h"

#include <gtest/gtest.h>

#include <cmath>

namespace quintet::testing {
namespace {

TEST(Buffers, NoticeWritesBeforeAndAfterThePayload) {
  for (int shift : {0, 1})
    for (int64_t place : {-16, -1, 3, 18}) {
      Buffer buffer({3}, DType::f32, {}, {}, shift);
      buffer.store({1, 2, 3});
      EXPECT_TRUE(buffer.guards_intact());
      buffer.view().data<float>()[place] = 0;
      EXPECT_FALSE(buffer.guards_intact()) << "element " << place << " of 3, shift " << shift;
    }
}

TEST(Buffers, StartAtTheAddressRequested) {
  for (int shift : {0, 1}) {
    const Buffer buffer({5}, DType::f32, {}, {}, shift);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.view().pointer) % 64, 4u * shift);
  }
}

TEST(Buffers, RoundToTheirTypeAndArePoisoned) {
  Buffer small({2}, DType::bf16, {}, {}, 0);
  small.store({1.001, 3});
  EXPECT_EQ(small.load(), (std::vector<double>{1, 3}));
  small.poison();
  EXPECT_TRUE(std::isnan(small.load()[1]));
  const Buffer moved = std::move(small);
  EXPECT_TRUE(moved.guards_intact());
  EXPECT_TRUE(std::isnan(moved.load()[0]));
}

}  // namespace
}  // namespace quintet::testing
