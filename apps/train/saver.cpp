#include "apps/train/saver.h"

#include <algorithm>

#include "apps/train/state/state_arrays.h"
#include "runtime/base/process/messages.h"

namespace quintet {

bool Saver::due() const {
  if (overdue_) return true;
  if (!run_.config.checkpoint.save) return run_.step() == run_.total_steps;
  const SaveCheckpointConfig& save = *run_.config.checkpoint.save;
  const auto& steps = save.checkpoint_steps;
  return run_.due(save.period.value_or(0)) ||
         std::find(steps.begin(), steps.end(), run_.step()) != steps.end();
}

void Saver::save_if_good() {
  const std::string reason = non_finite_.why_not_saved();
  if (reason.empty()) save(false);
  if (!reason.empty() && !overdue_)
    run_.progress->line(
        fmt::format("{}step {}: no checkpoint is saved: {}", warning_label(), run_.step(), reason));
  overdue_ = !reason.empty();
}

void Saver::save(bool wait) {
  run_.summaries->flush();
  run_.state.step = run_.step();
  run_.state.metrics_bytes = run_.summaries->metrics_bytes();
  run_.state.actions = action_states(run_.config.actions);
  const std::string dtype =
      run_.config.checkpoint.save ? run_.config.checkpoint.save->dtype : std::string("float32");
  StateSlices arrays = to_slices(*run_.trainer, dtype);
  Device& device = Device::current();
  const std::string bad = device.is_cpu() ? describe(count_not_finite(arrays.slices))
                                          : ruined_text(run_.trainer->first_ruined());
  if (run_.ranks.highest(bad.empty() ? 0 : 1) != 0) non_finite_.stop_on_ruin(bad, run_.step() - 1);
  drop_replicas(arrays, run_.mesh);
  CheckpointManager& checkpoints = *run_.checkpoints;
  if (!device.is_cpu()) {
    checkpoints.wait();  // the copy of the save before is written from
    run_.snapshot.take(arrays, dtype, device);
    checkpoints.save_async(
        run_.step(), [&run = run_] { return run.snapshot.finish(); }, to_json(run_.state));
    if (wait) checkpoints.wait();
  } else if (wait) {
    checkpoints.save(run_.step(), arrays.slices, to_json(run_.state));
  } else {
    checkpoints.save_async(run_.step(), arrays.slices, to_json(run_.state));
  }
  run_.saved_step = run_.step();
}

void Saver::save_end() {
  if (run_.saved_step == run_.step()) return;
  const bool takes_any = !run_.stop_early.empty() && save_after_skips(run_.config.actions);
  if (const std::string reason = takes_any ? "" : non_finite_.why_not_saved(); !reason.empty())
    non_finite_.stop_unsaved(reason);
  save(false);
}

}  // namespace quintet
