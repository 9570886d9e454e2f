#include "apps/config/actions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "runtime/base/check.h"
#include "runtime/base/formats/json.h"
#include "runtime/gin/config.h"
#include "tests/harness/fixtures.h"

namespace quintet {
namespace {

/// The action that a gin text makes under the name `action`.
class ActionFromGin {
 public:
  explicit ActionFromGin(const std::string& bindings) : config_(registry_, {}) {
    config_.parse_text(bindings, "test.gin");
    config_.finalize();
  }
  std::shared_ptr<Action> make(const std::string& name) {
    return config_.call_as<std::shared_ptr<Action>>(name);
  }

 private:
  struct Names : gin::Registry {
    Names() { register_actions(*this); }
  } registry_;
  gin::Config config_;
};

/// EarlyStoppingAction of ('task', 'loss').
std::shared_ptr<Action> early_stopping(const std::string& bindings) {
  const std::string name = "trainer.EarlyStoppingAction.";
  std::string text = name + "metric = ('task', 'loss')\n";
  for (size_t begin = 0; begin < bindings.size();) {
    const size_t end = std::min(bindings.find(';', begin), bindings.size());
    text += name + bindings.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return ActionFromGin(text).make("t5x.trainer.EarlyStoppingAction");
}

std::string shown(Action& action, double loss) {
  return action.run(1, {{"task", {{"loss", loss}}}});
}

TEST(EarlyStopping, StopsWhereT5xDoes) {
  const auto file = testing::fixture_root() / "semantics" / "early_stopping.jsonl";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  std::ifstream lines(file);
  int stopped = 0, went_on = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json row = Json::parse(line);
    const auto action = early_stopping(
        fmt::format("mode = '{}';patience = {};atol = {};rtol = {}", row["mode"].as_string(),
                    row["patience"].as_int(), row["atol"].as_double(), row["rtol"].as_double()));
    const Json stops_after = row["stops_after"];
    int64_t at = 0;
    bool stops = false;
    for (const Json& value : row["values"].items()) {
      const double loss =
          value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.as_double();
      stops = !shown(*action, loss).empty();
      if (stops) break;
      ++at;
    }
    EXPECT_EQ(stops ? at : -1, stops_after.is_null() ? -1 : stops_after.as_int()) << line;
    ++(stops ? stopped : went_on);
  }
  EXPECT_GT(stopped, 3);
  EXPECT_GT(went_on, 3);
}

TEST(EarlyStopping, ComparesEachValueWithTheOneBefore) {
  const auto action = early_stopping("mode = 'min';patience = 3");
  for (const double loss : {1.0, 5.0, 4.9, 6.0}) EXPECT_EQ(shown(*action, loss), "") << loss;
  EXPECT_NE(shown(*action, 6.0), "");  // 4.9, 6, 6
  EXPECT_NE(shown(*early_stopping("mode = 'max';patience = 1"), 3.0), "");
}

TEST(EarlyStopping, ComparesWithTheBestWhereAsked) {
  const char* bindings = "mode = 'min';patience = 2;compare_with_best = True";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  auto action = early_stopping(bindings);
  for (const double loss : {1.0, 2.0, 0.9, nan, 0.5, 0.7})
    EXPECT_EQ(shown(*action, loss), "") << loss;
  const auto restarted = early_stopping(bindings);
  EXPECT_EQ(restarted->restore(action->state()), "");
  EXPECT_NE(shown(*restarted, 0.6), "");  // better than the one before, but 0.5 is better than both
  action = early_stopping(bindings);
  for (const double loss : {0.5, nan}) EXPECT_EQ(shown(*action, loss), "") << loss;
  EXPECT_NE(shown(*action, 0.7), "");  // what is not a number is no new best
}

TEST(EarlyStopping, WaitsUntilAMetricHasLeftZero) {
  const auto action = early_stopping("mode = 'max';patience = 2;compare_with_best = True");
  for (const double value : {0.0, 0.0, 0.0, 0.0, 3.0, 2.0}) EXPECT_EQ(shown(*action, value), "");
  EXPECT_NE(shown(*action, 2.5), "");
}

TEST(EarlyStopping, RefusesWhatT5xRefuses) {
  for (const char* wrong : {"mode = 'least'", "mode = 'min';atol = -1.0",
                            "mode = 'min';rtol = -0.1", "mode = 'min';patience = 0"})
    EXPECT_THROW(early_stopping(wrong), Error) << wrong;
}

TEST(EarlyStopping, OtherTasksDoNotCount) {
  const auto action = early_stopping("mode = 'max';patience = 2");
  EXPECT_EQ(action->run(1, {{"task", {{"loss", 0.5}}}}), "");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(action->run(2, {{"other", {{"loss", 0.1}}}}), "");
  EXPECT_EQ(action->run(2, {{"task", {{"accuracy", 0.1}}}}), "");
  const std::string warning = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(warning.find("no task of 'task/loss'"), std::string::npos) << warning;
  EXPECT_NE(warning.find("other"), std::string::npos) << warning;
  EXPECT_EQ(std::count(warning.begin(), warning.end(), '\n'), 1) << warning;
  EXPECT_NE(action->run(3, {{"task", {{"loss", 0.5}}}}), "");
}

TEST(EarlyStopping, GoesOnWaitingAfterARestart) {
  const auto make = [](int patience) {
    return Actions{
        {"TRAIN", {early_stopping(fmt::format("mode = 'min';patience = {}", patience))}}};
  };
  const auto at = [](const Actions& actions, double loss) {
    return run_actions(actions, "TRAIN", 1, {{"task", {{"loss", loss}}}});
  };
  const Actions first = make(3);
  EXPECT_TRUE(action_states(first).empty());  // nothing seen yet
  EXPECT_EQ(at(first, 4.0), "");
  EXPECT_EQ(at(first, 5.0), "");

  const Actions second = make(3);
  EXPECT_EQ(restore_actions(second, action_states(first)), "");
  EXPECT_NE(at(second, 5.0), "");  // 4, 5, 5
  EXPECT_NE(restore_actions(make(3), action_states(second)), "") << "had ended";
  const Actions patient = make(4);
  EXPECT_EQ(restore_actions(patient, action_states(second)), "") << "more patience goes on";
  EXPECT_NE(at(patient, 5.0), "");
  EXPECT_EQ(at(make(3), 5.0), "") << "without its state it begins anew";
}

TEST(EarlyStopping, TakesNothingFromOneThatLooksAtAnotherMetric) {
  const std::string patience =
      "trainer.EarlyStoppingAction.patience = 2\n"
      "trainer.EarlyStoppingAction.mode = 'min'\n";
  ActionFromGin loss(patience + "trainer.EarlyStoppingAction.metric = ('task', 'loss')\n");
  ActionFromGin other(patience + "trainer.EarlyStoppingAction.metric = ('task', 'z_loss')\n");
  const Actions first = {{"TRAIN", {loss.make("t5x.trainer.EarlyStoppingAction")}}};
  const Actions second = {{"TRAIN", {other.make("t5x.trainer.EarlyStoppingAction")}}};
  run_actions(first, "TRAIN", 1, {{"task", {{"loss", 1.0}}}});
  restore_actions(second, action_states(first));
  EXPECT_EQ(run_actions(second, "TRAIN", 2, {{"task", {{"z_loss", 2.0}}}}), "");
}

TEST(TerminateOnNan, FailsOrStopsAsT5xDoes) {
  const TaskMetrics good = {{"train", {{"loss", 2.0}}}};
  const std::string task = "trainer.TerminateOnNanAction.task = 'train'\n";
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
    const auto fails = ActionFromGin(task).make("t5x.trainer.TerminateOnNanAction");
    EXPECT_EQ(fails->run(1, good), "");
    try {
      fails->run(2, {{"train", {{"loss", bad}}}});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kNonFinite);
    }
    const auto stops = ActionFromGin(task + "trainer.TerminateOnNanAction.fail = False\n")
                           .make("t5x.trainer.TerminateOnNanAction");
    EXPECT_EQ(stops->run(1, good), "");
    EXPECT_NE(stops->run(2, {{"train", {{"loss", bad}}}}), "");
  }
}

TEST(Actions, KnowT5xsModesAlone) {
  EXPECT_NO_THROW(check_modes({{"TRAIN", {}}, {"TRAIN_EVAL", {}}, {"INFER_EVAL", {}}}, "actions"));
  try {
    check_modes({{"EVAL", {}}}, "run.gin:3");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("run.gin:3: 'EVAL'"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace quintet
