#pragma once
// Which checkpoints are evaluated, one after the other: those that are there, or those of a run while it trains (T5X's
// auxiliary job, `quintet eval --follow`).
//
//   EvaluatedCheckpoints checkpoints(config, ranks);
//   while (const auto folder = checkpoints.next(asked)) ...

#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "apps/config/evaluation_config.h"
#include "apps/process/ranks.h"

namespace quintet {

class EvaluatedCheckpoints {
 public:
  /// Throws what checkpoint_folders does; a usage error if one checkpoint, or several runs, shall be followed.
  EvaluatedCheckpoints(const EvaluationConfig& config, const Ranks& ranks);

  /// Waits, to follow it, until `model_dir` is a run's: it has a configuration. Says once on stderr what it waits for. A
  /// folder that holds something else is not waited for.
  static void wait_for_configuration(const std::filesystem::path& model_dir);

  /// Those that are listed; of a run that is followed its folder.
  std::vector<std::filesystem::path> folders() const;
  /// The next in order of step; none: there is no other. Following waits until the run saves one, gives its lock back, or
  /// `asked` to stop: a run that was killed keeps its lock, so that whoever starts it again is waited for. All ranks call
  /// it. Throws ExitCode::kData if the run that is followed ended without a checkpoint.
  std::optional<std::filesystem::path> next(const std::function<bool()>& asked);

 private:
  /// Whether the run goes on; its new checkpoints join the others.
  bool look();

  const Ranks& ranks_;
  std::optional<std::filesystem::path> followed_;
  std::deque<std::filesystem::path> folders_;
  std::set<int64_t> seen_;
};

}  // namespace quintet
