#pragma once
// t5x.trainer's actions: what looks at metrics and may end a run early.
//
//   actions = {'TRAIN_EVAL': [@trainer.EarlyStoppingAction()]}

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/gin/registry.h"

namespace quintet {

/// Task -> metric -> value.
using TaskMetrics = std::map<std::string, std::map<std::string, double>>;

class Action {
 public:
  virtual ~Action() = default;
  /// A reason to stop, or nothing. Throws kNumbers when the run must not go on.
  virtual std::string run(int64_t step, const TaskMetrics& metrics) = 0;
};

/// Keys TRAIN, TRAIN_EVAL and INFER_EVAL; in TRAIN the task is named "train".
using Actions = std::map<std::string, std::vector<std::shared_ptr<Action>>>;

/// Runs those of `mode`; the first reason to stop, or empty.
std::string run_actions(const Actions& actions, const std::string& mode, int64_t step,
                        const TaskMetrics& metrics);

void register_actions(gin::Registry& registry);

}  // namespace quintet
