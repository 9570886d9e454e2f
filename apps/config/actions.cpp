#include "apps/config/actions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <optional>

#include "runtime/base/check.h"
#include "runtime/base/process/messages.h"
#include "runtime/mpi/session.h"

namespace quintet {
namespace {

constexpr std::array<std::string_view, 3> kActionModes = {"TRAIN", "TRAIN_EVAL", "INFER_EVAL"};

/// One metric of one task.
class Watched {
 public:
  Watched(std::string action, std::string task, std::string metric)
      : action_(std::move(action)), task_(std::move(task)), metric_(std::move(metric)) {}
  /// Nothing, and a warning the first time, if the mode has no such task or metric.
  std::optional<double> value(const TaskMetrics& metrics) {
    const auto found = metrics.find(task_);
    if (found == metrics.end()) return missing("task", keys(metrics));
    const auto value = found->second.find(metric_);
    if (value == found->second.end()) return missing("metric", keys(found->second));
    return value->second;
  }
  std::string name() const { return task_ + "/" + metric_; }

 private:
  template <typename Map>
  static std::vector<std::string> keys(const Map& map) {
    std::vector<std::string> names;
    for (const auto& [name, value] : map) names.push_back(name);
    return names;
  }
  std::nullopt_t missing(const char* what, const std::vector<std::string>& known) {
    if (!has_warned_ && mpi::Session::rank_of_process().value_or(0) == 0)
      print_warning("{}: there is no {} of '{}' here, so it does nothing; there are: {}", action_,
                    what, name(), fmt::join(known, ", "));
    has_warned_ = true;
    return std::nullopt;
  }

  std::string action_, task_, metric_;
  bool has_warned_ = false;
};

/// T5X's: stops when each of the last `patience` values is no better than the one before it; or, which is
/// ours, none of them better than the best before.
class EarlyStopping final : public Action {
 public:
  EarlyStopping(const std::pair<std::string, std::string>& metric, const std::string& mode,
                int64_t patience, double atol, double rtol, bool compare_with_best)
      : metric_(kName, metric.first, metric.second),
        smaller_is_better_(mode == "min"),
        compare_with_best_(compare_with_best),
        patience_(patience),
        atol_(atol),
        rtol_(rtol) {
    QT_CHECK(mode == "min" || mode == "max", "{}.mode: expected 'min' or 'max', found '{}'", kName,
             mode);
    QT_CHECK(patience > 0, "{}.patience is {}, expected at least 1", kName, patience);
    QT_CHECK(atol >= 0, "{}.atol is {}, expected 0 or more", kName, atol);
    QT_CHECK(rtol >= 0, "{}.rtol is {}, expected 0 or more", kName, rtol);
  }

  std::string run(int64_t step, const TaskMetrics& metrics) override {
    const auto value = metric_.value(metrics);
    if (!value) return "";
    add(*value);
    const std::string reason = reason_to_stop();
    return reason.empty() ? "" : fmt::format("step {}: {}", step, reason);
  }

  ActionState state() const override {
    ActionState state;
    for (size_t i = 0; i < history_.size(); ++i) state[fmt::format("{:09}", i)] = history_[i];
    return state;
  }
  std::string restore(const ActionState& state) override {
    history_.clear();
    for (const auto& [number, value] : state) add(value);
    return reason_to_stop();
  }
  std::string name() const override {
    return fmt::format("EarlyStoppingAction {} {}", metric_.name(),
                       smaller_is_better_ ? "min" : "max");
  }

 private:
  static constexpr const char* kName = "trainer.EarlyStoppingAction";
  void add(double value) {
    const bool is_new_best =
        !std::isnan(value) && !history_.empty() && !is_no_better(value, history_.front());
    if (compare_with_best_ && is_new_best) history_.clear();
    history_.push_back(value);
    while (!compare_with_best_ && static_cast<int64_t>(history_.size()) > patience_)
      history_.pop_front();
  }
  /// In float32, as T5X compares. Not a number is no worse than any.
  bool is_no_better(double value, double before) const {
    const double least = atol_ + rtol_ * std::abs(before);
    const auto now = static_cast<float>(value);
    return smaller_is_better_ ? now >= static_cast<float>(before - least)
                              : now <= static_cast<float>(before + least);
  }
  std::string reason_to_stop() const {
    if (static_cast<int64_t>(history_.size()) < patience_ + (compare_with_best_ ? 1 : 0)) return "";
    // A metric that nothing is right by yet, as exact_match at the beginning, has not had its best.
    if (compare_with_best_ && !smaller_is_better_ && history_.front() == 0) return "";
    for (size_t i = 1; i < history_.size() && !compare_with_best_; ++i)
      if (!is_no_better(history_[i], history_[i - 1])) return "";
    return fmt::format("{} has not improved for {} evaluations: {}", metric_.name(), patience_,
                       fmt::join(history_, ", "));
  }

  Watched metric_;
  bool smaller_is_better_, compare_with_best_;
  int64_t patience_;
  double atol_, rtol_;
  std::deque<double> history_;  // the last `patience` values; or the best and those since
};

/// When a metric is not a finite number, fails with exit code 7, or stops as T5X does.
class TerminateOnNan final : public Action {
 public:
  TerminateOnNan(const std::string& task, const std::string& metric, bool fails)
      : metric_("trainer.TerminateOnNanAction", task, metric), fails_(fails) {}

  std::string run(int64_t step, const TaskMetrics& metrics) override {
    const auto value = metric_.value(metrics);
    if (!value || std::isfinite(*value)) return "";
    const std::string reason = fmt::format("step {}: {} is {}", step, metric_.name(), *value);
    QT_CHECK_AS(ExitCode::kNonFinite, !fails_, "{}; lower the learning rate or look at the data",
                reason);
    return reason;
  }
  bool saves_after_skips() const override { return !fails_; }

 private:
  Watched metric_;
  bool fails_;
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

bool save_after_skips(const Actions& actions) {
  return std::ranges::any_of(actions, [](const auto& of_mode) {
    return std::ranges::any_of(of_mode.second,
                               [](const auto& action) { return action->saves_after_skips(); });
  });
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

void check_modes(const Actions& actions, const std::string& where) {
  for (const auto& [mode, list] : actions)
    QT_CHECK(std::find(kActionModes.begin(), kActionModes.end(), mode) != kActionModes.end(),
             "{}: '{}' is no mode of actions; expected {}", where, mode,
             fmt::join(kActionModes, ", "));
}

void register_actions(gin::Registry& registry) {
  registry.add_function("t5x.trainer.EarlyStoppingAction",
                        [](const std::pair<std::string, std::string>& metric,
                           const std::string& mode, int64_t patience, double atol, double rtol,
                           bool compare_with_best) -> std::shared_ptr<Action> {
                          return std::make_shared<EarlyStopping>(metric, mode, patience, atol, rtol,
                                                                 compare_with_best);
                        },
                        {{"metric"},
                         {"mode"},
                         {"patience", 3},
                         {"atol", 0.0},
                         {"rtol", 0.0},
                         {"compare_with_best", false}});
  registry.add_function(
      "t5x.trainer.TerminateOnNanAction",
      [](const std::string& task, const std::string& metric, bool fail) -> std::shared_ptr<Action> {
        return std::make_shared<TerminateOnNan>(task, metric, fail);
      },
      {{"task"}, {"metric", "loss"}, {"fail", true}});
}

}  // namespace quintet
