// The caching allocator counts what is live and hands blocks out again.

#include "runtime/base/memory/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/memory/memory_meter.h"
#include "runtime/base/memory/placement.h"

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

TEST(Memory, BlocksSideBySideAreOneUntilNobodyHoldsAny) {
  Memory memory;
  MemoryMeter meter;
  {
    std::optional<MemoryMeter::Use> use(std::in_place, meter);
    std::vector<Buffer> blocks = memory.allocate_side_by_side(1000, 3);
    use.reset();
    ASSERT_EQ(blocks.size(), 3u);
    for (size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_EQ(blocks[i].get(), blocks[0].get() + i * 1024);
      EXPECT_EQ(blocks[i].use_count(), 1);
    }
    const int64_t used = memory.used_bytes();
    EXPECT_GE(used, 3048);
    count_as(blocks[1], MemoryKind::kGradients);
    EXPECT_EQ(meter.used()[static_cast<size_t>(MemoryKind::kGradients)], 3048);
    blocks.erase(blocks.begin(), blocks.begin() + 2);
    EXPECT_EQ(memory.used_bytes(), used);
  }
  EXPECT_EQ(memory.used_bytes(), 0);
  EXPECT_EQ(MemoryMeter::sum(meter.used()), 0);
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

/// Bytes that are held when most are.
int64_t most_held(const std::vector<BlockLife>& blocks) {
  int64_t most = 0;
  for (const BlockLife& now : blocks) {
    int64_t held = 0;
    for (const BlockLife& block : blocks)
      if (block.begin <= now.begin && now.begin < block.end) held += block.bytes;
    most = std::max(most, held);
  }
  return most;
}

void expect_apart(const std::vector<BlockLife>& blocks, const MemoryPlacement& placement) {
  ASSERT_EQ(placement.places.size(), blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    const MemoryPlacement::Place& a = placement.places[i];
    EXPECT_EQ(a.bytes, blocks[i].bytes);
    EXPECT_LE(a.offset + a.bytes, placement.bytes);
    for (size_t j = 0; j < i; ++j) {
      const MemoryPlacement::Place& b = placement.places[j];
      if (blocks[i].begin < blocks[j].end && blocks[j].begin < blocks[i].end) {
        EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset)
            << i << " and " << j;
      }
    }
  }
}

TEST(MemoryPlacement, KeepsBlocksOfOneTimeApart) {
  std::mt19937 random(1);
  for (int time = 0; time < 20; ++time) {
    std::vector<BlockLife> blocks;
    std::vector<size_t> held;
    int64_t event = 0;
    for (; event < 400; ++event)
      if (held.empty() || random() % 2 == 0) {
        held.push_back(blocks.size());
        blocks.push_back(
            {.bytes = 256 * (1 + static_cast<int64_t>(random() % 100)), .begin = event});
      } else {
        std::swap(held[random() % held.size()], held.back());
        blocks[held.back()].end = event;
        held.pop_back();
      }
    for (const size_t index : held) blocks[index].end = event;
    const MemoryPlacement placement = place_blocks(blocks);
    expect_apart(blocks, placement);
    EXPECT_LE(placement.bytes, most_held(blocks) * 5 / 4);
  }
  EXPECT_EQ(place_blocks({}).bytes, 0);
}

/// A small training step: activations of growing size that go back in reverse order, each for a gradient that stays.
std::vector<Buffer> step_of(Memory& memory) {
  std::vector<Buffer> activations, gradients;
  for (int64_t layer = 1; layer <= 12; ++layer) {
    memory.allocate(layer * 3000);  // scratch
    activations.push_back(memory.allocate(layer * 12000));
  }
  while (!activations.empty()) {
    const auto layer = std::ssize(activations);
    const Buffer passing = memory.allocate(layer * 20000);
    gradients.push_back(memory.allocate(layer * 11000));
    activations.pop_back();
  }
  return gradients;
}

TEST(MemoryPlacement, NeedsWhatIsHeldAtOnce) {
  Memory memory;
  MemoryTrace trace(memory);
  const auto gradients = step_of(memory);
  Memory().allocate(1 << 20);  // another's
  const std::vector<BlockLife> blocks = trace.close();
  memory.allocate(1 << 20);  // later
  EXPECT_EQ(blocks.size(), 48u);
  const MemoryPlacement placement = place_blocks(blocks);
  expect_apart(blocks, placement);
  EXPECT_EQ(placement.bytes, most_held(blocks));
}

TEST(MemoryPlacement, LeavesOutWhatIsTakenInAPause) {
  Memory memory;
  MemoryTrace trace(memory);
  const Buffer first = memory.allocate(1000);
  {
    const MemoryTrace::Pause pause;
    memory.allocate(5000);
  }
  memory.allocate(2000);
  const std::vector<BlockLife> blocks = trace.close();
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].bytes, 1024);
  EXPECT_EQ(blocks[0].end, 3);  // held at the end
  EXPECT_EQ(blocks[1].bytes, 2048);
  EXPECT_EQ(blocks[1].end, 2);
}

MemoryPlacement placement_of_step() {
  Memory memory;
  MemoryTrace trace(memory);
  const auto gradients = step_of(memory);
  return place_blocks(trace.close());
}

TEST(MemoryArena, HasOneBlockForWorkThatWasTraced) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "blocks are apart for AddressSanitizer, which is to see every block's end";
#endif
  const MemoryPlacement placement = placement_of_step();
  SmallSource source(placement.bytes + 1000);
  Memory memory(source);
  memory.allocate(placement.bytes / 2);  // cached: in the way
  std::vector<Buffer> gradients;
  {
    const MemoryPlacement::Use use(placement);
    const MemoryArena arena(memory);
    gradients = step_of(memory);
    ASSERT_EQ(arena.blocks().size(), 1u);
    EXPECT_EQ(arena.blocks()[0].capacity, placement.bytes);
    EXPECT_EQ(memory.used_bytes(), placement.bytes);
    EXPECT_EQ(memory.peak_bytes(), placement.bytes);
  }
  EXPECT_EQ(memory.used_bytes(), placement.bytes) << "some of it is held";
  gradients.clear();
  EXPECT_EQ(memory.used_bytes(), 0);
  EXPECT_EQ(memory.accounting(), "0.000 GiB in all");
  EXPECT_EQ(source.released, 2) << "what was cached, and the block of the arena at once";
}

TEST(MemoryArena, KeepsTheBlockOfAnotherWhileItIsOpen) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "nothing is placed for AddressSanitizer";
#endif
  const MemoryPlacement placement = placement_of_step();
  SmallSource source(2 * placement.bytes);
  Memory memory(source);
  std::vector<Buffer> gradients;
  {
    const MemoryPlacement::Use use(placement);
    const MemoryArena arena(memory);
    gradients = step_of(memory);
  }
  {
    const MemoryArena arena(memory);
    gradients.clear();
    EXPECT_EQ(memory.used_bytes(), 0);
    EXPECT_EQ(source.released, 0) << "a GPU that records can free nothing";
  }
  memory.release_cached();
  EXPECT_EQ(source.released, 1);
}

TEST(MemoryArena, HandsNoPlaceOutThatIsStillHeld) {
  const MemoryPlacement placement = placement_of_step();
  Memory memory;
  const MemoryPlacement::Use use(placement);
  const MemoryArena arena(memory);
  std::vector<Buffer> all;  // nothing comes back
  for (const MemoryPlacement::Place& place : placement.places)
    all.push_back(memory.allocate(place.bytes));
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const std::byte *a = all[i].get(), *b = all[j].get();
      EXPECT_TRUE(a + placement.places[i].bytes <= b || b + placement.places[j].bytes <= a)
          << i << " and " << j;
    }
  EXPECT_NE(memory.allocate(123456), nullptr) << "of no size that was traced";
}

TEST(MemoryArena, SaysThatThereIsNoBlockForWorkThatWasTraced) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "nothing is placed for AddressSanitizer";
#endif
  const MemoryPlacement placement = placement_of_step();
  SmallSource source(placement.bytes - 1000);
  Memory memory(source);
  const MemoryPlacement::Use use(placement);
  try {
    const MemoryArena arena(memory);
    FAIL() << "there is no such block";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("a small memory for work that is to be recorded"),
              std::string::npos)
        << e.what();
  }
  EXPECT_EQ(memory.used_bytes(), 0);
}

TEST(Memory, AcceptsEmptyBlocks) { EXPECT_NE(Memory().allocate(0).get(), nullptr); }

}  // namespace
}  // namespace quintet
