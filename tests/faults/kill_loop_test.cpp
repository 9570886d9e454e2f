// kill -9 at random moments, again and again in one directory (fault rows C1, C2): the newest step
// never goes back and nothing damaged is ever visible. $QUINTET_KILLS: how often (20).

#include <chrono>
#include <random>
#include <thread>

#include "tests/faults/run_driver.h"

namespace quintet {
namespace {

using testing::Launch;

/// A slow machine takes long to start a program: the clock runs from its first line of output.
void wait_for_output(const std::filesystem::path& file) {
  for (int i = 0; i < 20'000; ++i) {
    std::error_code error;
    if (std::filesystem::file_size(file, error) > 0 && !error) return;
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
}

TEST(RandomKills, NeverLoseACommittedStep) {
  const char* wanted = std::getenv("QUINTET_KILLS");
  const int kills = wanted != nullptr ? std::atoi(wanted) : 20;
  ASSERT_GT(kills, 0);
  const testing::FaultFolder folder;
  const auto model_dir = testing::prepared(folder.path(), "run");
  std::mt19937 random(7);
  int64_t newest = 2;
  int killed_in_work = 0;
  for (int i = 0; i < kills && !::testing::Test::HasFailure(); ++i) {
    Launch launch{.model_dir = model_dir, .mode = i % 2 == 0 ? "sync" : "async", .steps = 1000};
    std::filesystem::remove(model_dir.string() + ".out");
    const pid_t pid = testing::start_driver(launch);
    if (i % 4 != 0) wait_for_output(model_dir.string() + ".out");  // else: also while starting
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    ::kill(pid, SIGKILL);
    const testing::Ended ended = testing::wait_for_driver(pid, launch);
    ASSERT_EQ(ended.signal, SIGKILL) << ended.errors;
    EXPECT_EQ(ended.errors.find("DAMAGED"), std::string::npos) << ended.errors;
    killed_in_work += ended.lines.size() > 1;
    newest = std::max(newest, ended.committed(newest));
    testing::expect_sound(model_dir, newest);
    const auto steps = list_checkpoints(model_dir);
    ASSERT_FALSE(steps.empty());
    newest = std::max(newest, steps.back());
  }
  EXPECT_GT(killed_in_work, kills / 3) << "the kills came before any work: nothing was tested";
}

}  // namespace
}  // namespace quintet
