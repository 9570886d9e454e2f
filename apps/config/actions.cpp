#include "apps/config/actions.h"

#include <cmath>
#include <optional>

#include "runtime/base/check.h"

namespace quintet {
namespace {

/// The metric's value; nothing if the mode has no such task or metric.
std::optional<double> lookup(const TaskMetrics& metrics, const std::string& task,
                             const std::string& metric) {
  const auto found = metrics.find(task);
  if (found == metrics.end()) return std::nullopt;
  const auto value = found->second.find(metric);
  if (value == found->second.end()) return std::nullopt;
  return value->second;
}

/// Stops when a metric has not improved by more than atol and rtol for `patience` evaluations.
class EarlyStopping final : public Action {
 public:
  EarlyStopping(std::pair<std::string, std::string> metric, const std::string& mode,
                int64_t patience, double atol, double rtol)
      : metric_(std::move(metric)),
        smaller_is_better_(mode == "min"),
        patience_(patience),
        atol_(atol),
        rtol_(rtol) {
    QT_CHECK(mode == "min" || mode == "max",
             "trainer.EarlyStoppingAction.mode: expected 'min' or 'max', found '{}'", mode);
  }

  std::string run(int64_t step, const TaskMetrics& metrics) override {
    const auto value = lookup(metrics, metric_.first, metric_.second);
    if (!value) return "";
    const double margin = best_ ? atol_ + rtol_ * std::abs(*best_) : 0;
    const bool better =
        !best_ || (smaller_is_better_ ? *value < *best_ - margin : *value > *best_ + margin);
    if (better) {
      best_ = *value;
      waited_ = 0;
      return "";
    }
    ++waited_;
    const std::string reason = reason_to_stop();
    return reason.empty() ? "" : fmt::format("step {}: {}", step, reason);
  }

  ActionState state() const override {
    if (!best_) return {};
    return {{"best", *best_}, {"waited", static_cast<double>(waited_)}};
  }
  std::string restore(const ActionState& state) override {
    best_ = state.at("best");
    waited_ = static_cast<int64_t>(state.at("waited"));
    return reason_to_stop();
  }
  std::string name() const override {
    return fmt::format("EarlyStopping {}/{} {}", metric_.first, metric_.second,
                       smaller_is_better_ ? "min" : "max");
  }

 private:
  std::string reason_to_stop() const {
    if (waited_ < patience_) return "";
    return fmt::format("{}/{} has not improved on {} for {} evaluations", metric_.first,
                       metric_.second, *best_, waited_);
  }

  std::pair<std::string, std::string> metric_;
  bool smaller_is_better_;
  int64_t patience_, waited_ = 0;
  double atol_, rtol_;
  std::optional<double> best_;
};

/// Ends the run with exit code 7 when a metric is not a finite number.
class TerminateOnNan final : public Action {
 public:
  TerminateOnNan(std::string task, std::string metric)
      : task_(std::move(task)), metric_(std::move(metric)) {}

  std::string run(int64_t step, const TaskMetrics& metrics) override {
    const auto value = lookup(metrics, task_, metric_);
    if (value && !std::isfinite(*value))
      fail(ExitCode::kNonFinite,
           "step {}: {}/{} is {}; lower the learning rate or look at the data", step, task_,
           metric_, *value);
    return "";
  }

 private:
  std::string task_, metric_;
};

}  // namespace

std::string run_actions(const Actions& actions, const std::string& mode, int64_t step,
                        const TaskMetrics& metrics) {
  const auto found = actions.find(mode);
  if (found == actions.end()) return "";
  std::string reason;
  for (const auto& action : found->second) {
    const std::string given = action->run(step, metrics);
    if (reason.empty()) reason = given;
  }
  return reason;
}

std::map<std::string, ActionState> action_states(const Actions& actions) {
  std::map<std::string, ActionState> states;
  for (const auto& [mode, list] : actions)
    for (const auto& action : list)
      if (ActionState state = action->state(); !state.empty())
        states[mode + ": " + action->name()] = std::move(state);
  return states;
}

std::string restore_actions(const Actions& actions,
                            const std::map<std::string, ActionState>& states) {
  std::string reason;
  for (const auto& [mode, list] : actions)
    for (const auto& action : list) {
      const auto found = states.find(mode + ": " + action->name());
      if (found == states.end()) continue;
      const std::string given = action->restore(found->second);
      if (reason.empty()) reason = given;
    }
  return reason;
}

void register_actions(gin::Registry& registry) {
  registry.add_function("t5x.trainer.EarlyStoppingAction",
                        [](std::pair<std::string, std::string> metric, const std::string& mode,
                           int64_t patience, double atol, double rtol) -> std::shared_ptr<Action> {
                          return std::make_shared<EarlyStopping>(std::move(metric), mode, patience,
                                                                 atol, rtol);
                        },
                        {{"metric"}, {"mode"}, {"patience", 3}, {"atol", 0.0}, {"rtol", 0.0}});
  registry.add_function(
      "t5x.trainer.TerminateOnNanAction",
      [](const std::string& task, const std::string& metric) -> std::shared_ptr<Action> {
        return std::make_shared<TerminateOnNan>(task, metric);
      },
      {{"task"}, {"metric", "loss"}});
}

}  // namespace quintet
