// The caching allocator counts what is live and hands blocks out again.

#include "runtime/base/memory/memory.h"

#include <gtest/gtest.h>

#include "runtime/base/check.h"

namespace quintet {
namespace {

TEST(Memory, CountsLiveBytesAndTheirPeak) {
  Memory memory;
  {
    const Buffer a = memory.allocate(1000);
    EXPECT_GE(memory.used_bytes(), 1000);
    const Buffer b = memory.allocate(5000);
    EXPECT_GE(memory.peak_bytes(), 6000);
  }
  EXPECT_EQ(memory.used_bytes(), 0);
  EXPECT_GE(memory.peak_bytes(), 6000);
  memory.reset_peak();
  EXPECT_EQ(memory.peak_bytes(), 0);
}

TEST(Memory, HandsAFreedBlockOutAgain) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "nothing is kept for AddressSanitizer, which is to see every block's end";
#endif
  Memory memory;
  const std::byte* first = memory.allocate(1 << 20).get();
  EXPECT_EQ(memory.allocate((1 << 20) - 100).get(), first);
}

TEST(Memory, NeverHandsOutABlockInUse) {
  Memory memory;
  const Buffer a = memory.allocate(4096), b = memory.allocate(4096);
  EXPECT_NE(a.get(), b.get());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.get()) % 64, 0u);
}

TEST(Memory, SaysHowMuchWasWantedWhenThereIsNoMore) {
  Memory memory;
  try {
    memory.allocate(int64_t{1} << 60);
    FAIL() << "allocated an exbibyte";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kEnvironment);
    EXPECT_NE(std::string(e.what()).find("1152921504606846976 bytes"), std::string::npos);
  }
}

TEST(Memory, AcceptsEmptyBlocks) { EXPECT_NE(Memory().allocate(0).get(), nullptr); }

}  // namespace
}  // namespace quintet
