// apps/process/allocation.cpp, which is linked into this program alone.

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "apps/process/small_blocks.h"
#include "runtime/base/memory/out_of_memory.h"

namespace quintet {
namespace {

// More than the limit, and than any machine has.
volatile size_t much = size_t{1} << 34, too_much = size_t{1} << 50;

/// The process has no more memory than now.
void limit_memory() {
  const rlimit none{.rlim_cur = size_t{1} << 32, .rlim_max = size_t{1} << 32};
  setrlimit(RLIMIT_AS, &none);
}

TEST(AllocationDeathTest, WhatALibraryCannotHaveEndsTheProgram) {
  const auto told = ::testing::ExitedWithCode(4);
  const char* text = "error: out of memory: a library wanted 17179869184 bytes";
  EXPECT_EXIT((limit_memory(), std::free(std::malloc(much))), told, text);
  EXPECT_EXIT((limit_memory(), std::free(std::calloc(much / 8, 8))), told, text);
  EXPECT_EXIT((limit_memory(), std::free(std::realloc(std::malloc(8), much))), told, text);
  void* block = nullptr;
  EXPECT_EXIT((limit_memory(), (void)!posix_memalign(&block, 64, much)), told, text);
}

TEST(AllocationDeathTest, AServerThatRunsGoesOn) {
  const auto try_it = [] {
    refused_memory_ends_program = false;
    limit_memory();
    _exit(std::malloc(much) == nullptr ? 42 : 1);
  };
  EXPECT_EXIT(try_it(), ::testing::ExitedWithCode(42), "");
}

/// They have another way if they do not get it.
TEST(Allocation, WhatLibrariesProbeForIsRefusedAsEver) {
  EXPECT_EQ(std::malloc(too_much), nullptr);
  EXPECT_EQ(std::calloc(too_much, too_much), nullptr);
  constexpr int kLargePages = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB;
  void* pages = mmap(nullptr, 2 << 20, PROT_READ | PROT_WRITE, kLargePages, -1, 0);
  if (pages != MAP_FAILED) munmap(pages, 2 << 20);  // this machine keeps some
}

TEST(AllocationDeathTest, MemoryForCodeEndsTheProgramToo) {
  const auto map = [] {
    const rlimit none{.rlim_cur = 1, .rlim_max = 1};
    setrlimit(RLIMIT_AS, &none);
    mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  };
  EXPECT_EXIT(map(), ::testing::ExitedWithCode(4), "a library wanted 1048576 bytes");
}

TEST(Allocation, OurOwnCodeLearnsOfIt) {
  EXPECT_THROW(::operator delete(::operator new(too_much)), std::bad_alloc);
  EXPECT_EQ(::operator new(too_much, std::nothrow), nullptr);
  EXPECT_EQ(memalign(64, too_much), nullptr);
  EXPECT_EQ(std::aligned_alloc(64, too_much), nullptr);
  EXPECT_EQ(mmap(nullptr, too_much, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), MAP_FAILED);
}

constexpr size_t kSmall = 100;  // bytes
using Small = std::unique_ptr<std::array<char, kSmall>>;

/// Bytes of blocks that malloc has given and that were not given back.
int64_t bytes_in_use() { return static_cast<int64_t>(mallinfo2().uordblks); }

TEST(SmallBlocks, ADeletedBlockIsTheNextOfItsSize) {
  void* block = ::operator new(40);
  ::operator delete(block);
  void* larger = ::operator new(41);
  void* fits = ::operator new(33);
  EXPECT_NE(larger, block);
  EXPECT_EQ(fits, block);
  ::operator delete(larger);
  ::operator delete(fits);
  ::operator delete(nullptr);
}

TEST(SmallBlocks, HoldWhatIsAskedFor) {
  for (int round = 0; round < 2; ++round) {
    std::vector<void*> blocks;
    for (size_t bytes = 0; bytes < 300; ++bytes) {
      blocks.push_back(::operator new(bytes));
      EXPECT_GE(malloc_usable_size(blocks.back()), bytes);
    }
    for (void* block : blocks) ::operator delete(block);
  }
}

TEST(SmallBlocks, AThreadHoldsFew) {
  std::vector<Small> blocks(20 * SmallBlocks::kMost);
  const int64_t before = bytes_in_use();
  for (Small& block : blocks) block = std::make_unique<Small::element_type>();
  blocks.clear();
  EXPECT_LT(bytes_in_use() - before, static_cast<int64_t>(2 * SmallBlocks::kMost * kSmall));
}

TEST(SmallBlocks, AThreadThatEndsGivesThemBack) {
  constexpr int kThreads = 50;
  const auto work = [] {
    static thread_local std::vector<Small> deleted_last;  // after what the thread holds was freed
    deleted_last.resize(SmallBlocks::kMost);
    for (Small& block : deleted_last) block = std::make_unique<Small::element_type>();
    std::vector<Small>().swap(deleted_last);
    deleted_last.resize(SmallBlocks::kMost);
    for (Small& block : deleted_last) block = std::make_unique<Small::element_type>();
  };
  std::thread(work).join();
  const int64_t before = bytes_in_use();
  for (int i = 0; i < kThreads; ++i) std::thread(work).join();
  EXPECT_LT(bytes_in_use() - before, static_cast<int64_t>(5 * SmallBlocks::kMost * kSmall));
}

}  // namespace
}  // namespace quintet
