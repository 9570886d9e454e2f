// kill -9 again and again in one directory (fault rows C1, C2): the newest step never goes back and
// nothing damaged is ever visible. Three of four kills come after a chosen line of output, so within the
// work however slow the machine, the fourth at any time from the start. $QUINTET_KILLS: how often (20).

#include <algorithm>
#include <chrono>
#include <fstream>
#include <random>
#include <thread>

#include "tests/faults/run_driver.h"
#include "tests/harness/wait_for.h"

namespace quintet {
namespace {

using testing::Launch;

/// Waits until the program has written `wanted` lines; false after a minute without them.
bool wait_for_lines(const std::filesystem::path& file, int64_t wanted) {
  return testing::wait_for([&] {
    if (!std::filesystem::exists(file)) return false;
    const std::string text = read_file(file);
    return std::count(text.begin(), text.end(), '\n') >= wanted;
  });
}

TEST(RandomKills, NeverLoseACommittedStep) {
  const char* wanted = std::getenv("QUINTET_KILLS");
  const int kills = wanted != nullptr ? std::atoi(wanted) : 20;
  ASSERT_GT(kills, 0);
  const testing::FaultFolder folder;
  const auto model_dir = testing::prepared(folder.path(), "run");
  std::mt19937 random(7);
  int64_t newest = 2;
  int killed_in_work = 0, meant_for_work = 0;
  for (int i = 0; i < kills && !::testing::Test::HasFailure(); ++i) {
    // More steps than any machine saves before the kill.
    const Launch launch{
        .model_dir = model_dir, .mode = i % 2 == 0 ? "sync" : "async", .steps = 1'000'000};
    const std::filesystem::path output = model_dir.string() + ".out";
    for (const char* suffix : {".out", ".err"})  // a kill may come before the driver opens them
      std::ofstream(model_dir.string() + suffix, std::ios::trunc);
    const pid_t pid = testing::start_driver(launch);
    bool in_time = true;
    if (i % 4 != 3) {
      ++meant_for_work;
      in_time = wait_for_lines(output, 2 + static_cast<int64_t>(random() % 16));
    }
    // delay: the moment of the kill
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    ::kill(pid, SIGKILL);
    const testing::Ended ended = testing::wait_for_driver(pid, launch);
    ASSERT_TRUE(in_time) << "the driver wrote too little in a minute: " << ended.errors;
    ASSERT_EQ(ended.signal, SIGKILL) << ended.errors;
    EXPECT_EQ(ended.errors.find("DAMAGED"), std::string::npos) << ended.errors;
    killed_in_work += ended.lines.size() > 1;
    newest = std::max(newest, ended.committed(newest));
    testing::expect_sound(model_dir, newest);
    const auto steps = list_checkpoints(model_dir);
    ASSERT_FALSE(steps.empty());
    newest = std::max(newest, steps.back());
  }
  EXPECT_GE(killed_in_work, meant_for_work);
}

}  // namespace
}  // namespace quintet
