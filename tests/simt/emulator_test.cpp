// What the emulator says when something is wrong, and that a seed means one schedule.

#include "kernels/simt/emulator/emulator.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <string>

#include "kernels/simt/emulator/engine/device_memory.h"
#include "tests/simt/case.h"

namespace quintet::emulated {
/// Defined in message_cases.cu: the message of a kernel that fails in that way.
std::string message_of(const std::string& what);
/// The order in which the threads of some blocks ran.
std::vector<int> order_of_threads();
/// The launches that a recorder was handed, run afterwards: a sum that shows the order.
std::vector<float> recorded();
}  // namespace quintet::emulated

namespace quintet {
namespace {

using emulated::simt::emulator::set_seed;

void expect_parts(const std::string& what, const std::vector<std::string>& parts) {
  const std::string message = emulated::message_of(what);
  for (const auto& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos)
        << what << ": no \"" << part << "\" in: " << message;
  }
}

TEST(Emulator, TheHostCannotTouchTheDevicesMemory) {
  namespace emulator = emulated::simt::emulator;
  auto* const memory = static_cast<char*>(emulator::allocate_device_memory(100));
  {
    const emulator::DeviceMemoryAccess device;
    *memory = 0;  // what a host that can read it exits with
  }
  const int key = ::pkey_alloc(0, 0);
  if (key < 0 || std::getenv("QUINTET_GUARD_DEVICE_MEMORY") == nullptr)
    GTEST_SKIP() << "no QUINTET_GUARD_DEVICE_MEMORY, or a processor without protection keys";
  ::pkey_free(key);
  EXPECT_DEATH(std::exit(*memory), "");
  emulator::release_device_memory(memory, 100);
}
TEST(Emulator, DeadlockNamesKernelBlockBarrierAndThreads) {
  expect_parts("deadlock", {"stuck", "message_cases.cu:", "deadlock", "block (2, 0, 0)",
                            "threads 0-63 waiting at __syncthreads",
                            "barrier 0: 64 of 96 threads are there", "threads 64-95 ended"});
}
TEST(Emulator, NamedBarrierDeadlock) {
  expect_parts("named",
               {"named_barrier_sync", "barrier 3: 32 of 96 threads are there", "threads 0-31"});
}
TEST(Emulator, MbarrierDeadlock) {
  expect_parts("mbarrier",
               {"mbarrier_wait", "at offset 8, parity 0", "1 of 2 arrivals and 64 bytes missing"});
}
TEST(Emulator, OutOfBoundsNamesThreadAndOffset) {
  expect_parts("bounds",
               {"block (1, 0, 0), thread (7, 0, 0)", "element 8 of 8 (byte offset 32 of 32)"});
}
TEST(Emulator, SharedBeyondTheLaunch) {
  expect_parts("window", {"[16, 48) of a block that was launched with 32 bytes"});
}
TEST(Emulator, MasksThatDisagree) {
  expect_parts(
      "masks",
      {"deadlock",
       "threads 16-31 waiting at __shfl_xor_sync (mask ffffffff, lanes ffff0000 are there)"});
}
TEST(Emulator, DifferentWarpFunctions) {
  expect_parts("functions", {"__ballot_sync", "__syncwarp"});
}
TEST(Emulator, MaskWithoutTheCaller) {
  expect_parts("caller", {"mask 00000001 lacks the calling lane"});
}
TEST(Emulator, MisalignedCopy) {
  expect_parts("aligned", {"cp.async: an address is not a multiple of 16"});
}
TEST(Emulator, MisalignedWords) { expect_parts("words", {"an access of 16 bytes at address"}); }
TEST(Emulator, BarrierNotInitialised) {
  expect_parts("uninitialised", {"offset 0 of shared memory are not an mbarrier"});
}
TEST(Emulator, TooManyArrivals) { expect_parts("arrivals", {"more arrivals than its 1"}); }
TEST(Emulator, TooMuchSharedMemory) {
  expect_parts("limit", {"bytes of shared memory; a block has 232448"});
}
TEST(Emulator, GridBarrierNeedsACooperativeLaunch) {
  expect_parts("cooperative", {"the launch is not cooperative"});
}

TEST(Emulator, EndOfAThreadThatWaitedForNoneBefore) {
  expect_parts("early", {"launched early, but ended without wait_for_previous"});
}

TEST(Emulator, RunsOnAfterAnError) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_NE(emulated::message_of("deadlock"), "");
    expect_parts("ahead", {"block (1, 0, 0), thread (7, 0, 0)", "element 8 of 8"});
    EXPECT_EQ(emulated::message_of("nothing"), "");
  }
}

TEST(Emulator, ASeedIsASchedule) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    set_seed(seed);
    const auto first = emulated::order_of_threads();
    set_seed(seed);
    EXPECT_EQ(first, emulated::order_of_threads()) << seed;
    set_seed(seed + 100);
    EXPECT_NE(first, emulated::order_of_threads()) << seed;
  }
}

TEST(Emulator, LaunchesCanBeRecorded) {
  EXPECT_EQ(emulated::recorded(), (std::vector<float>{0, 5, 5}));
}

}  // namespace
}  // namespace quintet
