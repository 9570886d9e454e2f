// Which checkpoints go: what T5X's Checkpointer and SaveBestCheckpointer delete in the same folders.

#include "apps/train/state/retention.h"

#include <gtest/gtest.h>

#include <fstream>

#include "runtime/metrics/metrics_log.h"
#include "tests/checkpoint/scratch.h"

namespace quintet {
namespace {

using Steps = std::vector<int64_t>;

SaveCheckpointConfig keeping(int64_t keep, BestCheckpoints best = {}) {
  SaveCheckpointConfig config;
  config.keep = keep;
  config.best = std::move(best);
  return config;
}

const BestCheckpoints kMax{.metric = "train/accuracy"};
const BestCheckpoints kMin{.metric = "train/loss", .mode = "min"};

TEST(Retention, ByAge) {
  EXPECT_EQ(removed_steps(keeping(2), {1, 2, 3, 4}, {}), (Steps{1, 2}));
  EXPECT_EQ(removed_steps(keeping(4), {1, 2, 3, 4}, {}), Steps{});
  EXPECT_EQ(removed_steps({}, {1, 2, 3, 4}, {}), Steps{});
}

TEST(Retention, TheBestAndTheNewestStay) {
  const std::map<int64_t, double> values = {{1, 0.5}, {2, 0.9}, {3, 0.1}, {4, 0.7}, {5, 0.0}};
  EXPECT_EQ(removed_steps(keeping(2, kMax), {1, 2, 3, 4, 5}, values), (Steps{3, 1}));
  EXPECT_EQ(removed_steps(keeping(2, kMin), {1, 2, 3, 4, 5}, values), (Steps{2, 4}));
  EXPECT_EQ(removed_steps(keeping(4, kMax), {1, 2, 3, 4, 5}, values), Steps{});
}

TEST(Retention, OfEqualsTheOldestGo) {
  const std::map<int64_t, double> values = {{1, 1}, {2, 1}, {3, 1}, {4, 1}};
  EXPECT_EQ(removed_steps(keeping(1, kMax), {1, 2, 3, 4}, values), (Steps{1, 2}));
  EXPECT_EQ(removed_steps(keeping(1, kMin), {1, 2, 3, 4}, values), (Steps{1, 2}));
}

TEST(Retention, WithoutAMetricStepsStayOrAreTheWorst) {
  BestCheckpoints best = kMax;
  const std::map<int64_t, double> values = {{1, 0.5}, {3, 0.1}};
  EXPECT_EQ(removed_steps(keeping(1, best), {1, 2, 3, 4, 5}, values), Steps{3});
  EXPECT_EQ(removed_steps(keeping(1, best), {1, 2, 3, 4, 5}, {}), Steps{});
  best.keep_checkpoints_without_metrics = false;
  EXPECT_EQ(removed_steps(keeping(1, best), {1, 2, 3, 4, 5}, values), (Steps{2, 4, 3}));
  EXPECT_EQ(removed_steps(keeping(1, best), {1, 2, 3, 4, 5}, {}), (Steps{1, 2, 3}));
}

TEST(Retention, StepsOfTheForcedPeriodStayAndDoNotCount) {
  BestCheckpoints best = kMax;
  best.force_keep_period = 2;
  const std::map<int64_t, double> values = {{1, 0.5}, {2, 0.1}, {3, 0.4}, {4, 0.0}, {5, 0.3}};
  EXPECT_EQ(removed_steps(keeping(1, best), {1, 2, 3, 4, 5, 6}, values), (Steps{5, 3}));
  best.metric.clear();
  EXPECT_EQ(removed_steps(keeping(2, best), {1, 2, 3, 4, 5}, {}), Steps{1});
}

TEST(Retention, ReadsTheMetricAndSaysOnceThatThereIsNone) {
  const quintet::testing::Scratch scratch;
  CheckpointOptions options;
  set_retention(options, keeping(1, kMin), scratch.path());
  std::vector<std::string> warnings;
  EXPECT_EQ(options.choose_removed({1, 2, 3}, warnings), Steps{});
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("there is no metric 'train/loss'"), std::string::npos);
  {
    MetricsLog log(scratch.path() / "metrics.jsonl", 0);
    log.write("train", 1, {{"loss", 3.0}});
    log.write("training_eval/t", 1, {{"loss", 9.0}});
    log.write("train", 2, {{"loss", std::numeric_limits<double>::quiet_NaN()}});
    log.write("train", 3, {{"loss", 2.0}});
    log.write("train", 4, {{"loss", 7.0}});
    log.write("train", 4, {{"loss", 1.0}});  // written again: the last counts
  }
  std::ofstream(scratch.path() / "metrics.jsonl", std::ios::app) << "{\"step\":1,\"run\":\"train";
  EXPECT_EQ(options.choose_removed({1, 2, 3, 4, 5}, warnings), (Steps{1, 3}));
  EXPECT_EQ(warnings.size(), 1u);
  set_retention(options, keeping(1, {.metric = "training_eval/t/loss"}), scratch.path());
  EXPECT_EQ(options.choose_removed({1, 2, 3}, warnings), Steps{});
}

}  // namespace
}  // namespace quintet
