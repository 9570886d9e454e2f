#include "apps/train/run_files.h"

#include "apps/input/run_vocabularies.h"
#include "apps/model/model_info.h"
#include "runtime/base/files/atomic_file.h"

namespace quintet {

void write_run_files(TrainRun& run) {
  const std::string info =
      model_info(run.config.model->model->parameters(), run.config.partitioner.logical_axis_rules,
                 run.trainer->state());
  if (run.ranks.leads()) {
    run.summaries = std::make_unique<Summaries>(
        run.config.model_dir, run.state.metrics_bytes,
        run.resumed || run.state.step > 0 ? std::optional(run.state.step + 1) : std::nullopt);
    atomic_write_file(run.config.model_dir / "config.gin", run.config.config_text);
    copy_vocabularies(run.config.model_dir, run.state.vocabularies);
    atomic_write_file(run.config.model_dir / "model-info.txt", info);
    run.summaries->write_text("train", "config", gin::Config::markdown(run.config.config_text));
  } else {
    run.summaries = Summaries::none();
  }
}

}  // namespace quintet
