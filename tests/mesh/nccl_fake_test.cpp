// The NCCL backend against a fake of it made of threads (fake_nccl/): the order of streams and events, the
// making of communicators, every collective, and an error of NCCL's own. nccl_test.py has real GPUs.

#include <gtest/gtest.h>
#include <nccl.h>

#include <thread>

#include "kernels/device.h"
#include "runtime/mesh/collectives_nccl.h"
#include "runtime/mesh/collectives_threads.h"
#include "runtime/mesh/watchdog.h"
#include "tests/mesh/collective_cases.h"

namespace quintet {
namespace {

using namespace testing;

/// Watchdogs that do not hear of each other.
class Silence final : public WatchLine {
 public:
  void send(const Note&) override {}
  std::vector<Note> receive() override { return {}; }
};

/// Runs a case over NCCL; what ended the job, if a watchdog did.
std::string over_nccl(int count, const std::function<void(Comm&)>& body) {
  std::mutex mutex;
  std::string ended;
  run_ranks(count, [&](Comm& threads) {
    Watchdog watchdog({.timeout_seconds = 60,
                       .signalled = {},
                       .end = [&](const std::string& what) {
                         const std::lock_guard lock(mutex);
                         ended = what;
                       }},
                      threads.rank(), threads.hosts(), {}, std::make_unique<Silence>());
    const auto comm = open_nccl(threads.channel(), watchdog, Device::cpu());
    body(*comm);
    comm->world().barrier();  // nobody leaves while others wait
  });
  return ended;
}

class Ranks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, Ranks, ::testing::Values(2, 3, 4));

TEST_P(Ranks, CollectivesAgreeWithPlainLoops) {
  for (const int64_t count : {1, 7, 100'000})
    EXPECT_EQ(over_nccl(GetParam(),
                        [&](Comm& comm) { all_cases(comm, {count}, Sums::rounded); }),
              "");
}

TEST(Nccl, AnErrorOfItsOwnEndsTheJob) {
  const std::string ended = over_nccl(2, [](Comm& comm) {
    all_reduce_case(comm, 7, Sums::rounded);
    comm.world().barrier();
    break_fake_nccl(true);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  });
  break_fake_nccl(false);
  EXPECT_NE(ended.find("NCCL: remote process exited"), std::string::npos) << ended;
}

}  // namespace
}  // namespace quintet
