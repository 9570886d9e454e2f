// Watchdogs whose peer does not answer: dead, or gone because the job is over.

#include "runtime/mesh/collectives/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/harness/wait_for.h"

namespace quintet {
namespace {

using std::chrono::milliseconds;

class Silence final : public WatchChannel {
 public:
  explicit Silence(std::atomic<int>& asked) : asked_(asked) {}
  void send(const Note& to) override { asked_ += to.question ? 1 : 0; }
  std::vector<Note> receive() override { return {}; }

 private:
  std::atomic<int>& asked_;
};

/// Waits, after a signal, until the peer has been asked, and, if told to, until that ends the job;
/// whether it did.
bool ends_the_job(bool goes_on_waiting) {
  std::atomic<int> asked{0};
  std::atomic<bool> ended{false};
  const Activity activity{"all_reduce", "world", 1, 0, 0, {0, 1}};
  Watchdog watchdog({.timeout_seconds = 60,
                     .signalled = [] { return true; },
                     .end = [&](const std::string&) { ended = true; }},
                    0, {"here", "there"}, {}, std::make_unique<Silence>(asked));
  {
    const Watchdog::Waiting waiting(watchdog, activity, false);
    EXPECT_TRUE(testing::wait_for([&] { return asked > 0; }));
    if (goes_on_waiting) return testing::wait_for([&] { return ended.load(); });
  }
  std::this_thread::sleep_for(milliseconds(1500));  // delay: longer than it waits for answers
  return ended;
}

TEST(Watchdog, APeerThatDoesNotAnswerEndsTheJob) { EXPECT_TRUE(ends_the_job(true)); }

TEST(Watchdog, AWaitThatIsOverWhileThePeerIsQueriedDoesNot) { EXPECT_FALSE(ends_the_job(false)); }

}  // namespace
}  // namespace quintet
