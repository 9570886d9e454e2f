// The caching allocator counts what is live and hands blocks out again.

#include "runtime/base/memory/memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

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

/// Has so many bytes, and counts the blocks it was given back.
class SmallSource final : public MemorySource {
 public:
  explicit SmallSource(int64_t bytes) : left_(bytes) {}
  void* allocate(int64_t bytes) override {
    if (bytes > left_) return nullptr;
    left_ -= bytes;
    return MemorySource::host().allocate(bytes);
  }
  void release(void* pointer, int64_t bytes) override {
    left_ += bytes;
    ++released;
    MemorySource::host().release(pointer, bytes);
  }
  std::string name() const override { return "a small memory"; }
  int released = 0;

 private:
  int64_t left_;
};

TEST(MemoryArena, LacksMemoryWithoutFreeingAny) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "nothing is cached for AddressSanitizer";
#endif
  SmallSource source(1 << 20);
  Memory memory(source);
  memory.allocate(1 << 19);  // cached
  {
    const MemoryArena arena(memory);
    try {
      memory.allocate(3 << 18);
      FAIL() << "there is no such block";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("a small memory while work is recorded: 786432"),
                std::string::npos)
          << e.what();
    }
    EXPECT_EQ(source.released, 0);
  }
  EXPECT_NE(memory.allocate(3 << 18), nullptr);
  EXPECT_GT(source.released, 0);
}

TEST(MemoryArena, GivesOtherThreadsNothing) {
  Memory memory;
  const MemoryArena arena(memory);
  std::byte* const mine = memory.allocate(1000).get();
  Buffer theirs;
  std::thread([&] { theirs = memory.allocate(1000); }).join();
  EXPECT_NE(theirs.get(), mine);
  EXPECT_EQ(arena.blocks().size(), 1u);
  EXPECT_EQ(memory.allocate(1000).get(), mine);
}

TEST(MemoryArena, IsOpenedAndClosedWhileOthersAllocate) {
  Memory memory;
  std::atomic<bool> is_done = false;
  std::thread others([&] {
    while (!is_done) memory.allocate(1000);
  });
  for (int i = 0; i < 1000; ++i) {
    MemoryArena arena(memory);
    memory.allocate(1000);
    EXPECT_EQ(arena.blocks().size(), 1u);
    arena.close();
  }
  is_done = true;
  others.join();
  EXPECT_EQ(memory.used_bytes(), 0);
}

TEST(Memory, AcceptsEmptyBlocks) { EXPECT_NE(Memory().allocate(0).get(), nullptr); }

}  // namespace
}  // namespace quintet
