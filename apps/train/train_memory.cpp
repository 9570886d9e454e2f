#include "apps/train/train_memory.h"

#include <omp.h>

#include <algorithm>

#include "apps/input/run_data.h"
#include "apps/plan/layout_step.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

// Measured with oneDNN 2.7 and HDF5 1.10.8: code that is compiled as it is needed, working space of
// products, caches of chunks, what malloc keeps free.
constexpr int64_t kLibraries = int64_t{48} << 20, kLibrariesOfThread = int64_t{8} << 20;

int64_t of_kind(const MemoryMeter::Kinds& memory, MemoryKind kind) {
  return memory[static_cast<size_t>(kind)];
}

/// The model of a configuration anew: it is no cheap copy, but has memory only once it is
/// allocated.
ModelAndOptimizer model_of(GinSession& session) {
  const std::string name = "t5x.train.train.model";
  const auto configured =
      gin::as<std::shared_ptr<ConfiguredModel>>(session.config().evaluate(name), {name});
  configured->prepare_to_train();
  return {configured->model, configured->optimizer_to_train()};
}

/// Of tokens that all count: without any there is no loss.
HostArrays batch_of_ones(const TrainConfig& config) {
  const data::DatasetConfig& set = config.train_dataset;
  const auto converter = converter_for(*config.model, data::converter_options(set));
  HostArrays batch;
  for (const auto& [name, length] : converter->model_feature_lengths(set.task_feature_lengths)) {
    const auto ids = (batch[name] = HostArray(DType::i32, {set.batch_size, length})).as<int32_t>();
    std::fill(ids.begin(), ids.end(), 1);
  }
  return batch;
}

}  // namespace

MemoryNeed training_need(GinSession& session, const TrainConfig& config, int readers) {
  const int64_t team = omp_get_max_threads();
  MemoryNeed need{.threads = bytes_of_stacks(2 * (1 + readers) + 1),
                  .libraries = kLibraries + team * kLibrariesOfThread};
  LayoutRow step{.layout = {}};
  try {
    LayoutCase what{.make = [&] { return model_of(session); },
                    .batch = [&](int64_t) { return batch_of_ones(config); }};
    what.options = config.trainer;
    step = plan_layout(what, {}, {.hosts = {"abstract"}, .machine = {}}, 1);
  } catch (const Error& error) {
    if (error.code() == ExitCode::kEnvironment) throw;
    return need;  // the run itself tells what is wrong
  }
  if (!step.refused.empty()) return need;
  const int64_t parameters = of_kind(step.memory, MemoryKind::kParameters);
  const int64_t state = parameters + of_kind(step.memory, MemoryKind::kOptimizer);
  const int64_t passing = MemoryMeter::sum(step.memory) - state;
  const bool decodes = config.infer_eval_dataset.has_value();
  // Blocks are rounded up by an eighth and kept when they are free, for others of their size.
  // Decoding has its own copy of the parameters and keys and values, fewer than a step has
  // activations.
  need.tensors = state + state / 8 + 2 * passing + (decodes ? parameters + passing : 0);
  need.saving = state + state / 8;
  return need;
}

}  // namespace quintet
