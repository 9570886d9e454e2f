#include "apps/process/signals.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <thread>

#include "tests/harness/wait_for.h"

namespace quintet {
namespace {

TEST(StopRequests, NameTheSignal) {
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGXCPU}) {
    StopRequests stop({});
    EXPECT_FALSE(stop.reason());
    raise(number);
    ASSERT_TRUE(stop.reason());
    EXPECT_EQ(stop.reason()->substr(0, 3), "SIG");
  }
}

TEST(StopRequests, FormerHandlersComeBack) {
  const auto former = signal(SIGUSR1, SIG_IGN);
  { StopRequests stop({}); }
  raise(SIGUSR1);  // ignored again: the process lives
  signal(SIGUSR1, former);
}

TEST(StopRequests, WhatComesInNumbersIsOneRequest) {
  for (const int number : {SIGHUP, SIGXCPU}) {
    StopRequests stop({});
    raise(SIGTERM);
    raise(number);
    raise(number);
    EXPECT_EQ(*stop.reason(), "SIGTERM");
  }
}

TEST(StopRequests, AnIgnoredHangupStaysIgnored) {
  const auto former = signal(SIGHUP, SIG_IGN);
  {
    StopRequests stop({});
    raise(SIGHUP);
    EXPECT_FALSE(stop.reason());
  }
  signal(SIGHUP, former);
}

TEST(StopRequestsDeathTest, TheSecondSignalQuitsAtOnce) {
  EXPECT_EXIT(
      {
        StopRequests stop({});
        raise(SIGTERM);
        raise(SIGTERM);
      },
      ::testing::ExitedWithCode(128 + SIGTERM), "second signal");
}

TEST(StopRequests, TheStopFileIsSeenAndTakenAway) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "stop_test";
  std::filesystem::create_directories(folder);
  StopRequests stop(folder);
  EXPECT_FALSE(stop.reason());
  std::ofstream(folder / "STOP").put('\n');
  ASSERT_TRUE(testing::wait_for([&] { return stop.reason().has_value(); }));
  EXPECT_NE(stop.reason()->find("STOP"), std::string::npos);
  stop.clear_stop_file();
  EXPECT_FALSE(std::filesystem::exists(folder / "STOP"));
}

}  // namespace
}  // namespace quintet
