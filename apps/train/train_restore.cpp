// TrainLoop: where a run starts from, what it writes beside its metrics, and how it saves.

#include <chrono>

#include "apps/input/run_vocabularies.h"
#include "apps/model/model_info.h"
#include "apps/train/train_loop.h"
#include "runtime/base/atomic_file.h"
#include "runtime/base/threefry.h"
#include "runtime/batch_rows.h"

namespace quintet {
namespace {

LossFunction loss_function(const BaseModel& model) {
  return [&model](const HostArrays& batch, int64_t begin, int64_t end, Key key) {
    LossOutput out = model.loss_fn(batch, {begin, end}, {.train = true, .dropout_key = key});
    return StepLoss{std::move(out.loss), std::move(out.metrics)};
  };
}

int64_t seed_from_clock() {
  return std::chrono::system_clock::now().time_since_epoch().count() & 0x7fffffff;
}

data::ProviderPtr provider_for(const TrainLoop::ProviderOf& provider_of,
                               const std::optional<data::DatasetConfig>& config) {
  return config ? provider_of(*config) : nullptr;
}

/// This rank's rows of a data set's batches, as many as every rank has.
data::Shard shard_of(const std::string& scope, const data::DatasetConfig& dataset,
                     int64_t microbatches) {
  const auto [index, parts, axes] = batch_part();
  QT_CHECK(
      dataset.batch_size % (parts * microbatches) == 0,
      "{}/utils.DatasetConfig.batch_size {}: cannot be cut into {} parts over mesh axis '{}'{}; "
      "bind a multiple of {}",
      scope, dataset.batch_size, parts, fmt::join(axes, "+"),
      microbatches > 1 ? fmt::format(" and {} microbatches", microbatches) : "",
      parts * microbatches);
  return {index, parts, microbatches};
}

/// The ranks that have the same rows of batches as this one.
const Group& same_rows(const Mesh& mesh) {
  const MeshAxes cut = batch_part().axes;
  MeshAxes others;
  for (const MeshAxis& axis : mesh.axes())
    if (std::find(cut.begin(), cut.end(), axis.name) == cut.end()) others.push_back(axis.name);
  return mesh.group(others);
}

}  // namespace

data::FeatureConverterPtr converter_for(const ConfiguredModel& model,
                                        const data::ConverterOptions& options) {
  if (const auto* named = model.feature_converter_cls.get_if<gin::Callable>())
    return gin::as<data::FeatureConverterPtr>((*named)({}, {{"options", gin::to_value(options)}}),
                                              gin::Where{"feature_converter_cls"});
  return data::make_feature_converter(
      model.model->spec().decoder_only() ? "DecoderFeatureConverter" : "EncDecFeatureConverter",
      options);
}

TrainLoop::TrainLoop(TrainConfig config, Ranks& ranks, const ProviderOf& provider_of,
                     BatchSourceFn batch_source)
    : config_(std::move(config)),
      ranks_(ranks),
      lock_(ranks.leads() ? FolderLock(config_.model_dir)
                          : FolderLock::held_by_leader(config_.model_dir)),
      stop_(config_.model_dir),
      train_provider_(provider_of(config_.train_dataset)),
      train_eval_provider_(provider_for(provider_of, config_.train_eval_dataset)),
      infer_eval_provider_(provider_for(provider_of, config_.infer_eval_dataset)),
      mesh_(mesh_axes(config_.partitioner, ranks.size()), ranks.comm()),
      sharding_(mesh_, config_.partitioner.logical_axis_rules),
      on_the_mesh_(sharding_),
      batch_source_(std::move(batch_source)) {
  QT_CHECK(config_.model->optimizer != nullptr,
           "{}.optimizer_def is None; training needs an optimizer", config_.model->name);
  const int64_t parts = config_.trainer.num_microbatches;
  QT_CHECK(parts < 1 || config_.train_dataset.batch_size % parts == 0,
           "trainer.Trainer.num_microbatches {} does not divide "
           "train/utils.DatasetConfig.batch_size {}",
           parts, config_.train_dataset.batch_size);
  check_vocabularies();
  train_shard_ = shard_of("train", config_.train_dataset, std::max<int64_t>(parts, 1));
  if (config_.train_eval_dataset)
    train_eval_shard_ = shard_of("train_eval", *config_.train_eval_dataset, 1);
}

void TrainLoop::check_vocabularies() {
  const ConfiguredModel& model = *config_.model;
  const auto check = [&](const data::ProviderPtr& provider, const data::DatasetConfig& dataset) {
    check_ids(model, *provider, dataset);
    if (config_.verify_vocabs) verify_matching_vocabs(model, *provider);
  };
  check(train_provider_, config_.train_dataset);
  if (config_.train_eval_dataset) check(train_eval_provider_, *config_.train_eval_dataset);
  if (config_.infer_eval_dataset) check(infer_eval_provider_, *config_.infer_eval_dataset);
}

void TrainLoop::restore() {
  const auto vocabularies = vocabularies_of(*config_.model, train_provider_->output_features());
  CheckpointOptions options;
  if (config_.checkpoint.save)
    options.keep = static_cast<int>(config_.checkpoint.save->keep.value_or(0));
  options.run_id = ranks_.of_leader(make_run_id());
  options.hosts = ranks_.writers();
  checkpoints_ = std::make_unique<CheckpointManager>(lock_, options);
  std::optional<CheckpointReader> own;
  if (const auto step = checkpoints_->latest_whole())
    own.emplace(checkpoint_path(config_.model_dir, *step));
  resumed_ = own.has_value();
  if (own) {
    const std::string where = own->folder().string();
    state_ = run_state_from_json(own->state_json(), where + ": state");
    check_recorded(*own, vocabularies, ranks_.leads());
    QT_CHECK(!config_.random_seed || state_.seed == *config_.random_seed,
             "{}: was trained with random_seed {}, this run says {}; use the same seed or another "
             "model_dir",
             where, state_.seed, *config_.random_seed);
  } else {
    state_.seed = config_.random_seed.value_or(
        std::stoll(ranks_.of_leader(std::to_string(seed_from_clock()))));
  }
  state_.vocabularies = vocabularies;
  build_trainer();
  if (own) {
    load_arrays(*own, *trainer_);
    trainer_->restored(state_.step, state_.skipped_updates);
    batches_->restore(state_.data_position);
    stop_early_ = restore_actions(config_.actions, state_.actions);
    saved_step_ = state_.step;
  } else if (config_.checkpoint.restore && !config_.checkpoint.restore->path.empty()) {
    warm_start(*config_.checkpoint.restore);
  }
  total_steps_ =
      config_.relative_steps ? state_.first_step + *config_.relative_steps : config_.total_steps;
  QT_CHECK(trainer_->step() <= total_steps_,
           "{}: is at step {}, total_steps is {}; raise train_script.train.total_steps, bind "
           "relative_steps, or use another model_dir",
           config_.model_dir.string(), trainer_->step(), total_steps_);
}

void TrainLoop::build_trainer() {
  // T5X's keys: one for initial parameters, one for all steps.
  const Key root = key_from_seed(state_.seed);
  Parameters& parameters = config_.model->model->parameters();
  parameters.initialize(split_at(root, 0));
  trainer_ =
      std::make_unique<Trainer>(loss_function(*config_.model->model), parameters,
                                config_.model->optimizer, config_.trainer, split_at(root, 1));
  data::DatasetConfig train = config_.train_dataset;
  if (!train.seed) train.seed = state_.seed;
  if (resumed_) train.start_batch = 0;  // the checkpoint says where
  batches_ = batch_source_(*train_provider_, train,
                           converter_for(*config_.model, data::converter_options(train)),
                           train_shard_, same_rows(mesh_));
}

void TrainLoop::warm_start(const RestoreCheckpointConfig& config) {
  QT_CHECK(config.mode != "all", "utils.RestoreCheckpointConfig.mode = 'all' is for evaluation");
  QT_CHECK(config.path.size() == 1,
           "utils.RestoreCheckpointConfig.path: expected one path, found {}", config.path.size());
  const std::filesystem::path folder = checkpoint_folders(config).back();
  const CheckpointReader from(folder);
  from.verify(ranks_.rank(), ranks_.size());
  check_warm_start(from);
  load_arrays(from, config, *trainer_);
  const std::string bad = describe(count_not_finite(to_slices(*trainer_, "float32").slices));
  QT_CHECK_AS(ExitCode::kData, ranks_.highest(bad.empty() ? 0 : 1) == 0,
              "{}: {}; training cannot begin with them: name an earlier checkpoint",
              folder.string(), bad.empty() ? "holds values that are not finite" : bad);
  trainer_->restored(from.step(), 0);
  state_.step = state_.first_step = from.step();
  if (ranks_.leads()) fmt::print(stderr, "starting from {}\n", folder.string());
}

void TrainLoop::check_warm_start(const CheckpointReader& from) const {
  try {
    check_recorded(from, state_.vocabularies, ranks_.leads(),
                   ". To start from it with other vocabularies all the same, bind "
                   "train_script.train.verify_matching_vocabs_fn = None");
  } catch (const Error& error) {
    if (config_.verify_vocabs || error.code() != ExitCode::kData) throw;
    if (ranks_.leads()) fmt::print(stderr, "warning: {}\n", error.what());
  }
}

void TrainLoop::write_run_files() {
  const std::string info = model_info(config_.model->model->parameters(), *trainer_);
  if (ranks_.leads()) {
    summaries_ =
        std::make_unique<Summaries>(config_.model_dir, state_.metrics_bytes,
                                    resumed_ ? std::optional(state_.step + 1) : std::nullopt);
    atomic_write_file(config_.model_dir / "config.gin", config_.config_text);
    copy_vocabularies(config_.model_dir, state_.vocabularies);
    atomic_write_file(config_.model_dir / "model-info.txt", info);
    summaries_->write_text("train", "config", gin::Config::markdown(config_.config_text));
  } else {
    summaries_ = Summaries::none();
  }
  if (const auto& set = config_.train_eval_dataset)
    train_evaluator_ = std::make_unique<TrainEvaluator>(
        *train_eval_provider_, *set, converter_for(*config_.model, data::converter_options(*set)),
        train_eval_shard_, config_.eval_steps, [this](const std::string& line) {
          if (ranks_.leads()) fmt::print(stderr, "{}\n", line);
        });
  if (config_.infer_eval_dataset) {
    if (ranks_.leads()) config_.inference_evaluator.log_dir = config_.model_dir / "inference_eval";
    config_.inference_evaluator.options.peers = {
        ranks_.rank(), ranks_.size(),
        [this](const std::string& text) { return ranks_.gather(text); }};
    infer_evaluator_ =
        std::make_unique<InferenceEvaluator>(*infer_eval_provider_, *config_.infer_eval_dataset,
                                             config_.model, config_.inference_evaluator);
  }
}

/// The batch of the last step shows whether training can go on from the parameters as they are:
/// finite ones may still be so large that it cannot.
std::string TrainLoop::why_not_saved() {
  if (state_.skipped_in_a_row > 0)
    return fmt::format("the last update was skipped ({} in a row)", state_.skipped_in_a_row);
  if (!last_batch_) return "";
  const std::string bad = trainer_->first_bad_gradient(last_batch_->second);
  return bad.empty() ? "" : fmt::format("the gradient of {} would not be finite now", bad);
}

void TrainLoop::save_if_good() {
  const std::string reason = why_not_saved();
  if (reason.empty()) save(false);
  if (!reason.empty() && !save_overdue_)
    progress_->line(
        fmt::format("warning: step {}: no checkpoint is saved: {}", trainer_->step(), reason));
  save_overdue_ = !reason.empty();
}

void TrainLoop::save(bool wait) {
  summaries_->flush();
  state_.step = trainer_->step();
  state_.data_position = batches_->position();
  state_.metrics_bytes = summaries_->metrics_bytes();
  state_.actions = action_states(config_.actions);
  const std::string dtype =
      config_.checkpoint.save ? config_.checkpoint.save->dtype : std::string("float32");
  StateSlices arrays = to_slices(*trainer_, dtype);
  const std::string bad = describe(count_not_finite(arrays.slices));
  if (ranks_.highest(bad.empty() ? 0 : 1) != 0) stop_on_ruin(bad, trainer_->step() - 1);
  keep_own(arrays.slices, mesh_.world().on_host());
  if (wait)
    checkpoints_->save(trainer_->step(), arrays.slices, to_json(state_));
  else
    checkpoints_->save_async(trainer_->step(), arrays.slices, to_json(state_));
  saved_step_ = trainer_->step();
}

int TrainLoop::saved_run_again(const std::string& reason) {
  checkpoints_->wait();
  const int64_t step = trainer_->step();
  const std::string bad = saved_step_ != step ? why_not_saved() : std::string();
  if (bad.empty() && saved_step_ != step) save(true);
  summaries_->close();
  stop_.clear_stop_file();
  progress_->update(trainer_->step(), detail());
  progress_->finish();
  const int64_t from = checkpoints_->latest_step().value_or(0);
  if (ranks_.leads())
    fmt::print(
        stderr, "stopped by {} and {}: {}; the same command goes on from step {} of {}\n", reason,
        bad.empty() ? "saved"
                    : fmt::format("not saved at step {}, as {}; the last checkpoint", step, bad),
        checkpoint_path(config_.model_dir, from).string(), from, total_steps_);
  return static_cast<int>(ExitCode::kSavedRunAgain);
}

}  // namespace quintet
