// Watchdogs whose peer does not answer: dead, or gone because the job is over.

#include "runtime/mesh/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

namespace quintet {
namespace {

using std::chrono::milliseconds;

class Silence final : public WatchLine {
 public:
  explicit Silence(std::atomic<int>& asked) : asked_(asked) {}
  void send(const Note& to) override { asked_ += to.question ? 1 : 0; }
  std::vector<Note> receive() override { return {}; }

 private:
  std::atomic<int>& asked_;
};

/// Waits, after a signal, until the peer has been asked and then for `more`; whether that ended the job.
bool ends_the_job(milliseconds more) {
  std::atomic<int> asked{0};
  std::atomic<bool> ended{false};
  const Activity activity{"all_reduce", "world", 1, 0, 0, {0, 1}};
  Watchdog watchdog({.timeout_seconds = 60,
                     .signalled = [] { return true; },
                     .end = [&](const std::string&) { ended = true; }},
                    0, {"here", "there"}, {}, std::make_unique<Silence>(asked));
  {
    const Watchdog::Waiting waiting(watchdog, activity, false);
    while (asked == 0) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(more);
  }
  std::this_thread::sleep_for(milliseconds(1500));  // longer than it waits for answers
  return ended;
}

TEST(Watchdog, APeerThatDoesNotAnswerEndsTheJob) { EXPECT_TRUE(ends_the_job(milliseconds(1500))); }

TEST(Watchdog, AWaitThatIsOverWhileThePeerIsAskedDoesNot) {
  EXPECT_FALSE(ends_the_job(milliseconds(0)));
}

}  // namespace
}  // namespace quintet
