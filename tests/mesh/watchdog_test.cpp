// Watchdogs whose peer does not answer: dead, or gone because the job is over.

#include "runtime/mesh/collectives/watchdog.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

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

/// Notes between two ranks of one process.
struct Wire {
  std::mutex mutex;
  std::array<std::vector<WatchChannel::Note>, 2> notes;  // to each
};
class WireEnd final : public WatchChannel {
 public:
  WireEnd(Wire& wire, int rank) : wire_(wire), rank_(rank) {}
  void send(const Note& to) override {
    const std::lock_guard lock(wire_.mutex);
    wire_.notes[static_cast<size_t>(to.rank)].push_back({rank_, to.question, to.text});
  }
  std::vector<Note> receive() override {
    const std::lock_guard lock(wire_.mutex);
    return std::exchange(wire_.notes[static_cast<size_t>(rank_)], {});
  }

 private:
  Wire& wire_;
  int rank_;
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

TEST(Watchdog, ARankWhoseDeviceHasNotComeToACollectiveIsNamed) {
  const Activity activity{"all_reduce", "world", 1, 0, 0, {0, 1}};
  Wire wire;
  std::mutex mutex;
  std::string ended;
  const auto text = [&] {
    const std::lock_guard lock(mutex);
    return ended;
  };
  const auto options = [&](double timeout) {
    return Watchdog::Options{.timeout_seconds = timeout, .end = [&](const std::string& what) {
                               const std::lock_guard lock(mutex);
                               if (ended.empty()) ended = what;
                             }};
  };
  const std::vector<std::string> hosts{"here", "there"};
  Watchdog one(options(0.3), 0, hosts, {}, std::make_unique<WireEnd>(wire, 0));
  Watchdog other(options(60), 1, hosts, {}, std::make_unique<WireEnd>(wire, 1));
  Watchdog::Waiting waiting(one, activity, false), queued(other, activity, false);
  queued.set_started(false);
  EXPECT_TRUE(testing::wait_for([&] { return !text().empty(); }));
  EXPECT_NE(
      text().find("\n  rank 1 on there is at work on its device before all_reduce over world"),
      std::string::npos)
      << text();
}

}  // namespace
}  // namespace quintet
