#include "apps/actions.h"

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

TEST(TerminateOnNan, EndsWithExitCodeSeven) {
  ActionFromGin gin("trainer.TerminateOnNanAction.task = 'train'\n");
  const auto action = gin.make("t5x.trainer.TerminateOnNanAction");
  EXPECT_EQ(action->run(1, {{"train", {{"loss", 2.0}}}}), "");
  try {
    action->run(2, {{"train", {{"loss", std::numeric_limits<double>::quiet_NaN()}}}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kNumbers);
  }
}

}  // namespace
}  // namespace quintet
