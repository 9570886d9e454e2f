#include "apps/train/train_run.h"

#include "apps/input/run_vocabularies.h"
#include "runtime/trainer/batch_rows.h"

namespace quintet {
namespace {

data::ProviderPtr provider_for(const ProviderOf& provider_of,
                               const std::optional<data::DatasetConfig>& config) {
  return config ? provider_of(*config) : nullptr;
}

/// This rank's rows of a data set's batches, as many as every rank has.
data::Shard shard_of(const std::string& scope, const data::DatasetConfig& dataset,
                     int64_t microbatches) {
  const auto [index, parts, axes] = batch_part();
  QT_CHECK(dataset.batch_size % (parts * microbatches) == 0,
           "{}/utils.DatasetConfig.batch_size {}: cannot be sharded into {} parts over mesh axis "
           "'{}'{}; "
           "bind a multiple of {}",
           scope, dataset.batch_size, parts, fmt::join(axes, "+"),
           microbatches > 1 ? fmt::format(" and {} microbatches", microbatches) : "",
           parts * microbatches);
  return {index, parts, microbatches};
}

/// Microbatches are of an example each (take_each_example in train_config.cpp): a data shard has its share of them.
void share_examples(TrainConfig& config) {
  const int64_t shards = batch_part().count;
  config.model->model->check_example_gradients(shards);
  config.trainer.num_microbatches = std::max<int64_t>(config.trainer.num_microbatches / shards, 1);
}

/// Of the model and all data sets, before anything is read with them.
void check_vocabularies(const TrainRun& run) {
  const ConfiguredModel& model = *run.config.model;
  const auto check = [&](const data::ProviderPtr& provider, const data::DatasetConfig& dataset) {
    if (run.config.verify_vocabs) verify_matching_vocabs(model, *provider);
    check_ids(model, *provider, dataset);
  };
  check(run.train_provider, run.config.train_dataset);
  if (run.config.train_eval_dataset) check(run.train_eval_provider, *run.config.train_eval_dataset);
  if (run.config.infer_eval_dataset) check(run.infer_eval_provider, *run.config.infer_eval_dataset);
}

}  // namespace

TrainRun::TrainRun(TrainConfig run_config, Ranks& run_ranks, const ProviderOf& provider_of)
    : config(std::move(run_config)),
      ranks(run_ranks),
      lock(ranks.leads() ? FolderLock(config.model_dir)
                         : FolderLock::held_by_leader(config.model_dir)),
      stop(config.model_dir),
      train_provider(provider_of(config.train_dataset)),
      train_eval_provider(provider_for(provider_of, config.train_eval_dataset)),
      infer_eval_provider(provider_for(provider_of, config.infer_eval_dataset)),
      mesh(mesh_axes(config.partitioner, ranks.size()), ranks.comm()),
      sharding(mesh, config.partitioner.logical_axis_rules),
      on_the_mesh(sharding) {
  if (config.model->optimizer_to_train()->example_clip()) share_examples(config);
  const int64_t parts = config.trainer.num_microbatches;
  QT_CHECK(parts < 1 || config.train_dataset.batch_size % parts == 0,
           "trainer.Trainer.num_microbatches {} does not divide "
           "train/utils.DatasetConfig.batch_size {}",
           parts, config.train_dataset.batch_size);
  check_vocabularies(*this);
  train_shard = shard_of("train", config.train_dataset, std::max<int64_t>(parts, 1));
  if (config.train_eval_dataset)
    train_eval_shard = shard_of("train_eval", *config.train_eval_dataset, 1);
}

std::string TrainRun::loss_per_token() const {
  const bool summed = std::holds_alternative<std::monostate>(
      config.model->model->loss_options().loss_normalizing_factor);
  return summed ? "loss_per_nonpadding_target_token" : "loss";
}

bool TrainRun::due(int64_t period) const {
  const int64_t since = step() - state.first_step;
  return step() == total_steps || (period > 0 && since > 0 && since % period == 0);
}

}  // namespace quintet
