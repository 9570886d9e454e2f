#pragma once
// The arguments of seqio.Evaluator and its loggers, as gin files bind them.

#include <cstdint>
#include <filesystem>
#include <optional>

#include "data/evaluation/evaluator.h"
#include "runtime/gin/config.h"

namespace quintet {

/// The arguments of seqio.Evaluator that gin files bind.
struct EvaluatorConfig {
  data::EvaluatorOptions options;
  std::optional<int64_t> write_n_results;  // of JSONLogger; none: all
  // What logger_cls has; where no seqio.Evaluator is configured, those that write files.
  bool json_logger = true, tensorboard_logger = true, pylogging_logger = false;
  std::filesystem::path log_dir;  // of JSONLogger; empty: no files
};

/// seqio.Evaluator and its loggers.
void register_evaluator(gin::Registry& registry);

}  // namespace quintet
