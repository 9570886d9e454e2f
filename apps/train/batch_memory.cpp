#include "apps/train/batch_memory.h"

#include <sys/sysinfo.h>

#include <algorithm>

#include "kernels/device.h"
#include "runtime/base/axis.h"

namespace quintet {
namespace {

/// Memory and swap, in bytes.
double machine_bytes() {
  struct sysinfo info {};
  if (::sysinfo(&info) != 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(info.totalram + info.totalswap) * info.mem_unit;
}

int64_t embed_size(const BaseModel& model) {
  for (const ParamInfo& info : model.parameters().all())
    for (const Axis& axis : info.spec.axes)
      if (axis.name == axis::kEmbed) return axis.size;
  return 1;
}

/// Floating point: products of absurd sizes leave 64 bits.
void check_fits(const std::string& scope, const data::DatasetConfig& set, int64_t embed,
                int64_t parts, const std::string& advice) {
  double positions = 0;
  std::string lengths;
  for (const auto& [name, length] : set.task_feature_lengths) {
    positions += static_cast<double>(length);
    lengths += fmt::format("{}{}: {}", lengths.empty() ? "" : ", ", name, length.text());
  }
  const double bytes = static_cast<double>(set.batch_size) / static_cast<double>(parts) *
                       positions * static_cast<double>(embed) * sizeof(float);
  constexpr double kGib = 1 << 30;
  const double there = machine_bytes();
  if (bytes > there)
    fail(ExitCode::kEnvironment,
         "{0}/utils.DatasetConfig: batch_size {1} of task_feature_lengths {{{2}}}: the embedded "
         "tokens "
         "of one batch alone need {3:.4g} GiB on each rank, this machine has {4:.4g} GiB; lower "
         "batch_size or task_feature_lengths{5}",
         scope, set.batch_size, lengths, bytes / kGib, there / kGib, advice);
}

}  // namespace

void check_batches_fit(const TrainConfig& config, int ranks) {
  if (!Device::current().is_cpu()) return;
  const int64_t embed = embed_size(*config.model->model);
  check_fits("train", config.train_dataset, embed, ranks * config.trainer.num_microbatches,
             ", or raise trainer.Trainer.num_microbatches");
  if (config.train_eval_dataset)
    check_fits("train_eval", *config.train_eval_dataset, embed, ranks, "");
  if (config.infer_eval_dataset)
    check_fits("infer_eval", *config.infer_eval_dataset, embed, ranks, "");
}

}  // namespace quintet
