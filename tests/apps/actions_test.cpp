#include "apps/config/actions.h"

#include <gtest/gtest.h>

#include <limits>

#include "runtime/base/check.h"
#include "runtime/gin/config.h"

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

TEST(EarlyStopping, StopsAfterPatienceEvaluationsWithoutImprovement) {
  ActionFromGin gin(
      "trainer.EarlyStoppingAction.metric = ('task', 'loss')\n"
      "trainer.EarlyStoppingAction.mode = 'min'\n"
      "trainer.EarlyStoppingAction.patience = 2\n"
      "trainer.EarlyStoppingAction.atol = 0.1\n");
  const auto action = gin.make("t5x.trainer.EarlyStoppingAction");
  const auto at = [&](double loss) { return action->run(1, {{"task", {{"loss", loss}}}}); };
  EXPECT_EQ(at(5.0), "");
  EXPECT_EQ(at(4.0), "");
  EXPECT_EQ(at(3.95), "");  // within atol: the first without improvement
  EXPECT_NE(at(3.96), "");
}

TEST(EarlyStopping, OtherTasksDoNotCount) {
  ActionFromGin gin(
      "trainer.EarlyStoppingAction.metric = ('task', 'accuracy')\n"
      "trainer.EarlyStoppingAction.mode = 'max'\n"
      "trainer.EarlyStoppingAction.patience = 1\n");
  const auto action = gin.make("t5x.trainer.EarlyStoppingAction");
  EXPECT_EQ(action->run(1, {{"task", {{"accuracy", 0.5}}}}), "");
  EXPECT_EQ(action->run(2, {{"other", {{"accuracy", 0.1}}}}), "");
  EXPECT_NE(action->run(3, {{"task", {{"accuracy", 0.5}}}}), "");
}

TEST(EarlyStopping, GoesOnWaitingAfterARestart) {
  const std::string bindings =
      "trainer.EarlyStoppingAction.metric = ('task', 'loss')\n"
      "trainer.EarlyStoppingAction.mode = 'min'\n"
      "trainer.EarlyStoppingAction.patience = ";
  ActionFromGin two(bindings + "2\n"), three(bindings + "3\n");
  const auto make = [](ActionFromGin& gin) {
    return Actions{{"TRAIN", {gin.make("t5x.trainer.EarlyStoppingAction")}}};
  };
  const auto at = [](const Actions& actions, double loss) {
    return run_actions(actions, "TRAIN", 1, {{"task", {{"loss", loss}}}});
  };
  const Actions first = make(two);
  EXPECT_TRUE(action_states(first).empty());  // nothing seen yet
  EXPECT_EQ(at(first, 4.0), "");
  EXPECT_EQ(at(first, 5.0), "");

  const Actions second = make(two);
  EXPECT_EQ(restore_actions(second, action_states(first)), "");
  EXPECT_NE(at(second, 4.5), "");  // the second without improvement on 4
  EXPECT_NE(restore_actions(make(two), action_states(second)), "") << "had ended";
  EXPECT_EQ(restore_actions(make(three), action_states(second)), "") << "more patience goes on";
}

TEST(EarlyStopping, TakesNothingFromOneThatLooksAtAnotherMetric) {
  const std::string patience =
      "trainer.EarlyStoppingAction.patience = 1\n"
      "trainer.EarlyStoppingAction.mode = 'min'\n";
  ActionFromGin loss(patience + "trainer.EarlyStoppingAction.metric = ('task', 'loss')\n");
  ActionFromGin other(patience + "trainer.EarlyStoppingAction.metric = ('task', 'z_loss')\n");
  const Actions first = {{"TRAIN", {loss.make("t5x.trainer.EarlyStoppingAction")}}};
  const Actions second = {{"TRAIN", {other.make("t5x.trainer.EarlyStoppingAction")}}};
  run_actions(first, "TRAIN", 1, {{"task", {{"loss", 1.0}}}});
  restore_actions(second, action_states(first));
  EXPECT_EQ(run_actions(second, "TRAIN", 2, {{"task", {{"z_loss", 2.0}}}}), "");
}

TEST(TerminateOnNan, EndsWithExitCodeSeven) {
  ActionFromGin gin("trainer.TerminateOnNanAction.task = 'train'\n");
  const auto action = gin.make("t5x.trainer.TerminateOnNanAction");
  EXPECT_EQ(action->run(1, {{"train", {{"loss", 2.0}}}}), "");
  try {
    action->run(2, {{"train", {{"loss", std::numeric_limits<double>::quiet_NaN()}}}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kNonFinite);
  }
}

}  // namespace
}  // namespace quintet
