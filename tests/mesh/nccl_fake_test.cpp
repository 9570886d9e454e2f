// The NCCL backend against a fake of it made of threads (fake_nccl/): the order of streams and events, the
// making of communicators, every collective, and an error of NCCL's own. nccl_test.py has real GPUs.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstdlib>
#include <thread>

#include "kernels/device.h"
#include "runtime/base/check.h"
#include "runtime/mesh/collectives/collectives_nccl.h"
#include "runtime/mesh/collectives/collectives_threads.h"
#include "runtime/mesh/collectives/watchdog.h"
#include "tests/harness/wait_for.h"
#include "tests/mesh/collective_cases.h"

namespace quintet {
namespace {

using namespace testing;

/// Watchdogs that do not hear of each other.
class Silence final : public WatchChannel {
 public:
  void send(const Note&) override {}
  std::vector<Note> receive() override { return {}; }
};

/// Runs a case over NCCL; what ended the job, if a watchdog did.
std::string over_nccl(int count, const std::function<void(Comm&)>& body,
                      bool until_it_ends = false) {
  std::mutex mutex;
  std::string ended;
  const auto has_ended = [&] {
    const std::lock_guard lock(mutex);
    return !ended.empty();
  };
  run_ranks(count, [&](Comm& threads) {
    Watchdog watchdog({.timeout_seconds = 60,
                       .signalled = {},
                       .end =
                           [&](const std::string& what) {
                             const std::lock_guard lock(mutex);
                             ended = what;
                           }},
                      threads.rank(), threads.hosts(), {}, std::make_unique<Silence>());
    const auto comm = open_nccl(threads.channel(), watchdog, Device::cpu());
    body(*comm);
    if (until_it_ends) {
      EXPECT_TRUE(wait_for(has_ended));
    }
    comm->world().barrier();  // nobody leaves while others wait
  });
  return ended;
}

/// The library that is loaded as NCCL.
class Nccl : public ::testing::Test {
 protected:
  void SetUp() override { use(FAKE_NCCL); }
  static void use(const std::string& path) { setenv("QUINTET_NCCL", path.c_str(), 1); }
};

class Ranks : public Nccl, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(, Ranks, ::testing::Values(2, 3, 4));

TEST_P(Ranks, CollectivesAgreeWithPlainLoops) {
  for (const int64_t count : {1, 7, 100'000})
    EXPECT_EQ(over_nccl(GetParam(), [&](Comm& comm) { all_cases(comm, {count}, Sums::rounded); }),
              "");
}

TEST_F(Nccl, WhatIsInTheBackgroundIsOvertaken) {
  EXPECT_EQ(over_nccl(2,
                      [](Comm& comm) {
                        const Group group = comm.world(), background = group.in_background();
                        float made = 1, sum = 1, urgent = 2;
                        // A group's first collective makes what carries it, on all ranks in one order.
                        background.all_reduce(&made, 1, DType::f32).wait();
                        group.all_reduce(&made, 1, DType::f32).wait();
                        const auto start = [&] {
                          return background.all_reduce(&sum, 1, DType::f32);
                        };
                        // On rank 0 it cannot end before the urgent one, which was started later.
                        Pending first = comm.rank() == 0 ? start() : Pending();
                        group.all_reduce(&urgent, 1, DType::f32).wait();
                        EXPECT_EQ(urgent, 4);
                        if (comm.rank() == 1) first = start();
                        first.wait();
                        EXPECT_EQ(sum, 2);
                      }),
            "");
}

TEST_F(Nccl, AnErrorOfItsOwnEndsTheJob) {
  void* fake = dlopen(FAKE_NCCL, RTLD_NOW);
  ASSERT_NE(fake, nullptr) << dlerror();
  const auto break_it =
      reinterpret_cast<decltype(&break_fake_nccl)>(dlsym(fake, "break_fake_nccl"));
  const auto body = [&](Comm& comm) {
    all_reduce_case(comm, 7, Sums::rounded);
    comm.world().barrier();
    break_it(true);
  };
  const std::string ended = over_nccl(2, body, true);
  break_it(false);
  EXPECT_NE(ended.find("NCCL: remote process exited"), std::string::npos) << ended;
}

/// What starting says; its exit code is the environment's.
std::string refusal() {
  try {
    over_nccl(2, [](Comm&) {});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kEnvironment);
    return error.what();
  }
  return "no error";
}

TEST_F(Nccl, IsMissedBySentenceWhereItIsNot) {
  use("/nowhere/libnccl.so.2");
  const std::string said = refusal();
  for (const char* part :
       {"ranks with a GPU each talk by NCCL", "/nowhere/libnccl.so.2", "libnccl2", "QUINTET_NCCL"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
}

TEST_F(Nccl, ThatLacksAFunctionIsRefusedByName) {
  use("libz.so.1");
  const std::string said = refusal();
  for (const char* part : {"libz.so.1 has no function ncclGetErrorString", "QUINTET_NCCL"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
}

}  // namespace
}  // namespace quintet
