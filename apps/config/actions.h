#pragma once
// t5x.trainer's actions: what looks at metrics and may end a run early.
//
//   actions = {'TRAIN_EVAL': [@trainer.EarlyStoppingAction()]}

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/gin/registry/registry.h"

namespace quintet {

/// Task -> metric -> value.
using TaskMetrics = std::map<std::string, std::map<std::string, double>>;

using ActionState = std::map<std::string, double>;

class Action {
 public:
  virtual ~Action() = default;
  /// A reason to stop, or nothing. Throws kNonFinite when the run must not go on.
  virtual std::string run(int64_t step, const TaskMetrics& metrics) = 0;

  /// Whether a run that is stopped is saved after a skipped update, too, as in T5X.
  virtual bool saves_after_skips() const { return false; }

  /// What a checkpoint keeps of it; empty: nothing.
  virtual ActionState state() const { return {}; }
  /// Takes over what another run's action of the same name() saved; a reason to stop at once, or nothing.
  virtual std::string restore(const ActionState&) { return ""; }
  /// Tells it from actions that look at something else; of no use without a state.
  virtual std::string name() const { return ""; }
};

/// Keys TRAIN, TRAIN_EVAL and INFER_EVAL; in TRAIN the task is named "train".
using Actions = std::map<std::string, std::vector<std::shared_ptr<Action>>>;

/// Throws a usage error for another key.
void check_modes(const Actions& actions, const std::string& where);

/// Runs those of `mode`; the first reason to stop, or empty.
std::string run_actions(const Actions& actions, const std::string& mode, int64_t step,
                        const TaskMetrics& metrics);

/// Whether one of them wants the end of a stopped run saved, whatever update was last.
bool save_after_skips(const Actions& actions);

/// The states of all that have one, under "<mode>: <name>".
std::map<std::string, ActionState> action_states(const Actions& actions);
/// Gives each its state back, if there is one; the first reason to stop, or empty.
std::string restore_actions(const Actions& actions,
                            const std::map<std::string, ActionState>& states);

void register_actions(gin::Registry& registry);

}  // namespace quintet
