// Every file operation of a run of saves and deletions goes wrong once, in every way (fault rows C1,
// C2, C3, C4, C10): count the operations of a good run, then one run for each of them.

#include "tests/faults/run_driver.h"

namespace quintet {
namespace {

using testing::Ended;
using testing::FaultFolder;
using testing::Launch;

constexpr int64_t kBase = 2;  // newest step before the run

class EveryOperation : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { count_ = testing::count_operations(folder_.path(), GetParam()); }
  /// Runs `judge` after a run with `fault` at each operation.
  template <typename Judge>
  void sweep(const std::string& call, const std::string& later, const std::string& action,
             const Judge& judge) {
    ASSERT_GT(count_, 60) << "the shim sees the operations";
    for (int n = 1; n <= count_ && !HasFailure(); ++n) {
      const std::string fault = fmt::format("{}:{}{}={}", call, n, later, action);
      SCOPED_TRACE(fault);
      Launch launch{.model_dir = testing::prepared(folder_.path(), "run"),
                    .mode = GetParam(),
                    .fault = fault};
      const Ended ended = testing::run_driver(launch);
      judge(ended);
      testing::expect_sound(launch.model_dir, ended.committed(kBase));
      if (HasFailure()) fmt::print(stderr, "{}\n{}\n", fmt::join(ended.lines, "\n"), ended.errors);
    }
  }
  FaultFolder folder_;
  int count_ = 0;
};

void expect_killed(const Ended& ended) { EXPECT_EQ(ended.signal, SIGKILL) << ended.errors; }

/// Never a crash; good means really good; bad means exit code 5 with a path in the message.
void expect_good_or_disk_error(const Ended& ended) {
  EXPECT_EQ(ended.signal, 0);
  if (ended.code == 0) {
    EXPECT_EQ(ended.committed(kBase), kBase + 2) << "ended well without its last checkpoint";
    return;
  }
  EXPECT_EQ(ended.code, 5) << ended.errors;
  EXPECT_NE(ended.errors.find("/run"), std::string::npos) << ended.errors;
}

TEST_P(EveryOperation, KilledThereLeavesTheNewestCommittedStep) {
  sweep("any", "", "KILL", expect_killed);
}
TEST_P(EveryOperation, PowerLossThereLeavesTheNewestCommittedStep) {
  sweep("any", "", "POWER", expect_killed);
}
TEST_P(EveryOperation, PowerLossThatUndoesRenamesLeavesTheNewestCommittedStep) {
  sweep("any", "", "POWER_UNDONE", expect_killed);
}
TEST_P(EveryOperation, FailingOnceIsSurvivedOrReported) {
  sweep("any", "", "EIO", expect_good_or_disk_error);
}
TEST_P(EveryOperation, DiskFullOnceIsSurvivedOrReported) {
  sweep("any", "", "ENOSPC", expect_good_or_disk_error);
}
TEST_P(EveryOperation, FailingFromThereOnIsReported) {
  sweep("any", "+", "EIO", expect_good_or_disk_error);
}
INSTANTIATE_TEST_SUITE_P(Saving, EveryOperation, ::testing::Values("sync", "async", "keep_all"),
                         [](const auto& mode) { return std::string(mode.param); });

TEST(FailedReads, WhileReadingBackAreDiskErrors) {
  const FaultFolder folder;
  for (int n = 1; n <= 12; ++n) {
    Launch launch{.model_dir = testing::prepared(folder.path(), "run"),
                  .fault = fmt::format("read:{}=EIO", n)};
    const Ended ended = testing::run_driver(launch);
    EXPECT_EQ(ended.signal, 0);
    EXPECT_TRUE(ended.code == 0 || ended.code == 5) << ended.code << ended.errors;
  }
}

}  // namespace
}  // namespace quintet
