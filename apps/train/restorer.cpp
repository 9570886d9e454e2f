#include "apps/train/restorer.h"

#include <chrono>
#include <set>

#include "apps/input/run_vocabularies.h"
#include "apps/model/assignment_map.h"
#include "apps/model/checkpoint_parameters.h"
#include "apps/model/restored_checkpoint.h"
#include "apps/train/state/retention.h"
#include "apps/train/state/state_arrays.h"
#include "checkpoint/open/formats.h"
#include "checkpoint/open/open_checkpoint.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/process/messages.h"
#include "runtime/base/threefry.h"
#include "runtime/trainer/batch_rows.h"

namespace quintet {
namespace {

LossFunction loss_function(const BaseModel& model, bool t5x_dropout) {
  return [&model, t5x_dropout](const HostArrays& batch, int64_t begin, int64_t end, Key key) {
    return model.loss_fn(batch, {begin, end},
                         {.train = true, .dropout_key = key, .t5x_dropout = t5x_dropout});
  };
}

int64_t seed_from_clock() {
  return std::chrono::system_clock::now().time_since_epoch().count() & 0x7fffffff;
}

void build_trainer(TrainRun& run, const BatchSourceFn& batch_source) {
  // T5X's keys: one for initial parameters, one for all steps.
  const Key root = key_from_seed(run.state.seed);
  run.config.model->prepare_to_train();
  run.config.trainer.loss_is_total = true;
  run.config.trainer.fp8 = use_fp8(*run.config.model->model, run.config.fp8);
  Parameters& parameters = run.config.model->model->parameters();
  if (offloads_masters(run.config.trainer)) parameters.keep_masters_on_host();
  parameters.initialize(split_at(root, 0));
  const bool t5x_dropout = run.config.trainer.t5x_dropout;
  run.trainer = std::make_unique<Trainer>(loss_function(*run.config.model->model, t5x_dropout),
                                          parameters, run.config.model->optimizer_to_train(),
                                          run.config.trainer, split_at(root, 1));
  data::DatasetConfig train = run.config.train_dataset;
  if (!train.seed) train.seed = run.state.seed;
  if (run.resumed) train.start_batch = 0;  // the checkpoint says where
  run.batches = batch_source(*run.train_provider, train,
                             converter_for(*run.config.model, data::converter_options(train)),
                             run.train_shard, run.mesh.replicas(batch_part().axes));
}

/// Another run's vocabularies are this run's: else an error, or a warning if none are verified.
void check_warm_start(const TrainRun& run, const CheckpointReader& from) {
  try {
    check_recorded(from, run.state.vocabularies, run.ranks.leads(),
                   ". To start from it with other vocabularies all the same, bind "
                   "train_script.train.verify_matching_vocabs_fn = None");
  } catch (const Error& error) {
    if (run.config.verify_vocabs || error.code() != ExitCode::kData) throw;
    if (run.ranks.leads()) write_warning(error.what());
  }
}

/// The position in the data at which the run that wrote a checkpoint went on.
void restore_dataset(TrainRun& run, const CheckpointReader& from) {
  const std::string where = from.folder().string();
  QT_CHECK_AS(
      ExitCode::kData, from.is_native(),
      "{}: holds no position in the data; bind utils.RestoreCheckpointConfig.restore_dataset "
      "= False",
      where);
  run.batches->restore(run_state_from_json(from.state_json(), where + ": state").data_position);
}

/// The one checkpoint that a run starts from.
std::filesystem::path start_folder(const TrainRun& run, const RestoreCheckpointConfig& config) {
  QT_CHECK(config.mode != "all", "utils.RestoreCheckpointConfig.mode = 'all' is for evaluation");
  check_fallback(config);
  const auto folders = checkpoint_folders(config, run.ranks);
  QT_CHECK(folders.size() == 1, "utils.RestoreCheckpointConfig.path: expected one path, found {}",
           folders.size());
  return folders.front();
}

/// Throws on all ranks if one found something.
void check_finite(const TrainRun& run, const std::filesystem::path& folder,
                  const NotFinite& found) {
  const std::string bad = describe(found);
  QT_CHECK_AS(ExitCode::kData, run.ranks.highest(bad.empty() ? 0 : 1) == 0,
              "{}: {}; training cannot begin with them: name an earlier checkpoint",
              folder.string(), bad.empty() ? "holds values that are not finite" : bad);
}

void warm_start(TrainRun& run, const RestoreCheckpointConfig& config) {
  const std::filesystem::path folder = start_folder(run, config);
  const auto stored = open_checkpoint(folder);
  stored->verify_before_reading(run.ranks.rank(), run.ranks.size());
  check_warm_start(run, *stored);
  const auto from = restored(stored, config, shapes_of(*run.trainer));
  const bool parameters_alone = !has_optimizer_state(*stored);
  // Who says which array is read from where is not told of the rest, as in T5X.
  const Differences differences =
      load_arrays(*from, *run.trainer,
                  {.missing = config.fallback_to_scratch,
                   .extra = !config.strict || !config.transformations.empty(),
                   .no_optimizer = parameters_alone,
                   .advice = "assignment_map of utils.RestoreCheckpointConfig says where a name is "
                             "read from; with fallback_to_scratch = True None keeps its initial "
                             "value, and strict = False leaves out what the model has not"});
  check_finite(run, folder, count_not_finite(*run.trainer));
  run.trainer->restored(from->step(), 0);
  if (config.restore_dataset) restore_dataset(run, *stored);
  run.state.step = run.state.first_step = from->step();
  if (run.ranks.leads())
    fmt::print(stderr, "{}starting from {}{}, step {}\n", initialized_text(differences.missing),
               folder.string(),
               parameters_alone ? ": its parameters; the optimizer begins anew" : "", from->step());
}

/// Throws a usage error if parameters are to be read from elsewhere than their own names, as experts or not at all.
void check_base_is_as_stored(const CheckpointReader& base, const RestoreCheckpointConfig& config,
                             const ArrayShapes& model) {
  std::set<std::string> wanted;
  SourceNames sources;
  for (const auto& [name, shape] : model) wanted.insert(name);
  for (const auto& [name, tensor] : base.tensors()) sources[name] = name;
  for (const AssignmentMap& map : config.transformations)
    sources = apply_assignment_map(map, wanted, sources);
  bool is_as_stored = config.upcycled_experts == 0;
  for (const std::string& name : wanted)
    if (name.starts_with(kParameterPrefix) && base.tensors().contains(name))
      is_as_stored &= sources.contains(name) && sources.at(name) == name;
  QT_CHECK(is_as_stored,
           "lora.LoraConfig: adapters are merged into their base as it is stored, but "
           "assignment_map, state_transformation_fns or upcycling of "
           "utils.RestoreCheckpointConfig change its parameters; let a run without adapters save "
           "the changed model, and name that as the base");
}

/// Throws kData for parameters of a base that the model has not.
void check_strict(const CheckpointReader& base, const ArrayShapes& model) {
  std::vector<std::string> problems;
  for (const auto& [name, tensor] : base.tensors())
    if (name.starts_with(kParameterPrefix) && !model.contains(name))
      problems.push_back(name + ": in the checkpoint, not in the model");
  if (!problems.empty())
    problems.emplace_back(
        "strict = False of utils.RestoreCheckpointConfig leaves out what the model has not");
  fail_if_any(problems, base.folder().string());
}

/// Where the adapters' base is: what the run was told, or what its checkpoint says, unless it has moved since.
std::filesystem::path base_of(const TrainRun& run, const RestoreCheckpointConfig& told) {
  if (!run.resumed) return start_folder(run, told);
  const std::string run_dir = run.config.model_dir.string();
  QT_CHECK_AS(ExitCode::kData, run.state.lora.has_value(),
              "{}: was trained without adapters, this run has a lora.LoraConfig; use another "
              "model_dir",
              run_dir);
  const std::string& base = run.state.lora->base;
  if (run.ranks.highest(format_at(base) == nullptr ? 1 : 0) == 0) return base;
  try {
    return start_folder(run, told);
  } catch (const Error& error) {
    fail(error.code(),
         "{}: the base of its adapters, {}, is not there any more; bind "
         "utils.RestoreCheckpointConfig.path to where it is: {}",
         run_dir, base, error.what());
  }
}

/// Of a base whose kernels are to have adapters. Throws kData if a resumed run had another one.
void record_base(TrainRun& run, const CheckpointReader& base, const std::filesystem::path& folder) {
  std::vector<std::string> kernels;
  for (const ParamInfo& info : run.config.model->model->parameters().all())
    if (info.low_rank) kernels.push_back(parameter_key(info.name));
  const LoraConfig& lora = *run.config.model->lora;
  const AdapterRecord record{.base = std::filesystem::absolute(folder).string(),
                             .rank = lora.rank,
                             .alpha = lora.alpha,
                             .marks = marks_of(base, kernels)};
  if (run.resumed) {
    QT_CHECK(run.state.lora->rank == record.rank && run.state.lora->alpha == record.alpha,
             "{}: was trained with lora.LoraConfig.rank {} and alpha {}, this run says {} and {}; "
             "use the same or another model_dir",
             run.config.model_dir.string(), run.state.lora->rank, run.state.lora->alpha,
             record.rank, record.alpha);
    check_marks(base, run.state.lora->marks, run.config.model_dir.string());
  }
  run.state.lora = record;
  if (run.ranks.leads())
    fmt::print(stderr, "adapters of rank {} for {} kernels of {}, which stay as they are\n",
               lora.rank, kernels.size(), folder.string());
}

/// The base of a run with adapters: the checkpoint that it started from, read at each start.
void load_base(TrainRun& run) {
  const auto& restore = run.config.checkpoint.restore;
  QT_CHECK(restore && !restore->path.empty(),
           "lora.LoraConfig: adapters need a base; bind utils.RestoreCheckpointConfig.path");
  const std::filesystem::path folder = base_of(run, *restore);
  const auto stored = open_checkpoint(folder);
  stored->verify_before_reading(run.ranks.rank(), run.ranks.size());
  check_warm_start(run, *stored);
  Parameters& parameters = run.config.model->model->parameters();
  const ArrayShapes shapes = shapes_of(parameters);
  check_base_is_as_stored(*stored, *restore, shapes);
  const auto from = restored(stored, *restore, shapes);
  if (restore->strict) check_strict(*from, shapes);
  load_parameters(*from, parameters);
  check_finite(run, folder, count_not_finite_frozen(parameters));
  if (restore->restore_dataset && !run.resumed) restore_dataset(run, *stored);
  record_base(run, *from, folder);
  if (!run.resumed && run.ranks.leads() && is_there(folder.parent_path() / "config.gin"))
    print_warning(
        "{}: is what these adapters are read with, and a run that goes on there deletes old "
        "checkpoints; keep a copy if it may",
        folder.string());
}

/// Every rank writes files of its own: one that cannot says so now, not at the first save. The leader has
/// tried it with its lock.
void check_writable_by_all(const TrainRun& run) {
  std::string failure;
  try {
    if (!run.ranks.leads())
      check_writable(run.config.model_dir, fmt::format("rank-{}", run.ranks.rank()));
  } catch (const Error& error) {
    failure = fmt::format("rank {} on {}: {}", run.ranks.rank(), run.ranks.session().host(),
                          error.what());
  }
  if (run.ranks.highest(failure.empty() ? 0 : 1) == 0) return;
  for (const std::string& text : run.ranks.gather(failure))
    QT_CHECK_AS(ExitCode::kDisk, text.empty(), "{}", text);
}

void open_checkpoints(TrainRun& run, const data::VocabularyRecords& vocabularies) {
  const auto& save = run.config.checkpoint.save;
  CheckpointOptions options;
  if (save) set_retention(options, *save, run.config.model_dir);
  options.run_id = run.ranks.of_leader(make_run_id());  // the folder is there
  check_writable_by_all(run);
  options.hosts = run.ranks.writers();
  if (save && !save->copies.empty()) {
    run.copies = std::make_unique<CheckpointCopies>(
        run.config.model_dir, save->copies, *run.config.model,
        CheckpointCopies::RunFiles{run.config.config_text, vocabularies});
    options.after_save = [copies = run.copies.get()](int64_t step, HostGroup& hosts,
                                                     std::vector<std::string>& warnings) {
      copies->follow(step, hosts, warnings);
    };
  }
  run.checkpoints = std::make_unique<CheckpointManager>(run.lock, options);
}

/// Of the newest checkpoint, which a run that ended may have left without.
void write_missing_copies(TrainRun& run, int64_t step) {
  if (run.copies == nullptr) return;
  if (run.ranks.leads()) run.copies->tidy();
  if (run.ranks.highest(run.copies->lacks(step) ? 1 : 0) == 0) return;
  const std::shared_ptr<HostGroup> together = run.ranks.writers();
  HostGroup alone;
  std::vector<std::string> warnings;
  run.copies->follow(step, together ? *together : alone, warnings);
  for (const std::string& text : warnings) write_warning(text);
}

}  // namespace

void restore(TrainRun& run, const BatchSourceFn& batch_source) {
  const auto vocabularies =
      vocabularies_of(*run.config.model, run.train_provider->output_features());
  open_checkpoints(run, vocabularies);
  std::shared_ptr<const CheckpointReader> checkpoint;
  if ((checkpoint = run.checkpoints->latest_whole())) write_missing_copies(run, checkpoint->step());
  run.resumed = checkpoint != nullptr;
  if (checkpoint) {
    const std::string where = checkpoint->folder().string();
    run.state = run_state_from_json(checkpoint->state_json(), where + ": state");
    check_recorded(*checkpoint, vocabularies, run.ranks.leads());
    QT_CHECK(!run.config.random_seed || run.state.seed == *run.config.random_seed,
             "{}: was trained with random_seed {}, this run says {}; use the same seed or another "
             "model_dir",
             where, run.state.seed, *run.config.random_seed);
  } else {
    run.state.seed = run.config.random_seed.value_or(
        std::stoll(run.ranks.of_leader(std::to_string(seed_from_clock()))));
  }
  run.state.vocabularies = vocabularies;
  build_trainer(run, batch_source);
  const bool has_base = run.config.model->lora.has_value();
  if (has_base) load_base(run);
  if (checkpoint) {
    // Another model altogether is reported in a few lines.
    load_arrays(*checkpoint, *run.trainer, {.shown = 3});
    run.trainer->restored(run.state.step, run.state.skipped_updates);
    if (!run.state.data_position.empty())  // of commands (apps/interactive): the data begins
      run.batches->restore(run.state.data_position);
    run.stop_early = restore_actions(run.config.actions, run.state.actions);
    run.saved_step = run.state.step;
  } else if (!has_base && run.config.checkpoint.restore &&
             !run.config.checkpoint.restore->path.empty()) {
    warm_start(run, *run.config.checkpoint.restore);
  }
  run.state.data_position = run.batches->position();
  run.total_steps = run.config.relative_steps ? run.state.first_step + *run.config.relative_steps
                                              : run.config.total_steps;
  QT_CHECK(run.trainer->step() <= run.total_steps,
           "{}: is at step {}, total_steps is {}; raise train_script.train.total_steps, bind "
           "relative_steps, or use another model_dir",
           run.config.model_dir.string(), run.trainer->step(), run.total_steps);
}

}  // namespace quintet
