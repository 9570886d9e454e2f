#include "apps/config/ineffective.h"

#include <algorithm>
#include <cstdio>

#include "apps/config/checkpoint_config.h"
#include "apps/config/evaluation_config.h"
#include "apps/config/ineffective/rows.h"
#include "data/converters/feature_converter.h"
#include "kernels/device.h"
#include "models/configurables.h"
#include "runtime/base/check.h"
#include "runtime/base/process/messages.h"
#include "runtime/configurables/configurables.h"
#include "runtime/gin/config_state.h"
#include "runtime/gin/syntax/error.h"
#include "runtime/mpi/session.h"

namespace quintet {

using namespace ineffective;
using gin::Value;

namespace {

constexpr const char* kTrain = "t5x.train.train";
constexpr const char* kEval = "t5x.eval.evaluate";
constexpr const char* kInfer = "t5x.infer.infer";

/// A module of tasks that are built in, or that an import of the configuration has read as gin.
bool is_known_module(const Value& value, const gin::Config& config) {
  const auto* module = value.get_if<std::string>();
  const auto& imports = config.state().imports;
  return module != nullptr && (config.registry().has_module(*module) ||
                               std::any_of(imports.begin(), imports.end(), [&](const auto& import) {
                                 return import.module == *module;
                               }));
}

std::vector<Row> rows_of_training() {
  const std::string removed = "T5X has it no more; delete the line";
  return {
      {{kTrain}, "use_hardware_rng", kWarned, "random numbers are Threefry's on every machine"},
      {{kTrain}, "concurrent_metrics", kWarned, "it changes no metric"},
      {{kTrain}, "gc_period", kWarned, "there is no garbage collector"},
      {{kTrain},
       "get_dataset_fn",
       kRefused,
       "data are read by utils.get_dataset alone; tasks of your own are written in gin",
       is_named("t5x.utils.get_dataset")},
      {{kTrain, kEval},
       "train_eval_get_dataset_fn",
       kRefused,
       "data are read by utils.get_training_eval_datasets alone; tasks of your own are written in "
       "gin",
       is_named(kTrainEvalDatasets)},
      {{kTrainEvalDatasets}, "deterministic", kWarned, "data are deterministic in every run"},
      {{kTrain}, "prepare_train_iter_fn", kRemoved, removed},
      {{kTrain}, "training_eval_average_metrics", kRemoved, removed},
      {{kTrain}, "use_jax_array", kRemoved, removed},
      {{kTrain, kEval, kInfer}, "use_orbax", kWarned, "checkpoints have a format of their own"},
      {{kTrain, kEval, kInfer},
       "summarize_config_fn",
       kWarned,
       "what is written about a configuration is fixed",
       is_named("t5x.gin_utils.summarize_gin_config")},
      {{kTrain, kEval, kInfer},
       "train_state_initializer_cls",
       kRefused,
       "Python is not run; the state is made by utils.TrainStateInitializer alone",
       is_named("t5x.utils.TrainStateInitializer")},
  };
}

std::vector<Row> rows_of_evaluation() {
  const std::string writer = "t5x.infer.write_inferences_to_file";
  return {
      {{kTrainEvalDatasets},
       "eval_steps",
       kWarned,
       "train_script.train.eval_steps decides; eval reads it with a training_evaluator_cls",
       [](const Value&, const gin::Config& config) {
         const std::string evaluator = std::string(kEval) + ".training_evaluator_cls";
         return config.query(evaluator) != nullptr && !config.evaluate(evaluator).is_none();
       }},
      {{kInfer}, "keep_aux_as_numpy", kWarned, "scores are written as numbers either way"},
      {{writer},
       "json_encoder_cls",
       kRefused,
       "Python is not run; bind write_fn = @quintet.data.ProcessFunction() for lines of your own"},
      {{"seqio.loggers.PyLoggingLogger", "seqio.loggers.TensorBoardLogger",
        "seqio.loggers.JSONLogger"},
       "output_dir",
       kWarned,
       "the entry point's folder has all that is logged"},
      {{"seqio.evaluation.Evaluator"},
       "log_dir",
       kWarned,
       "the entry point's folder has all that is logged"},
      {{"seqio.evaluation.Evaluator"}, "use_memory_cache", kWarned, "it changes no metric"},
      {{"seqio.evaluation.Evaluator"}, "async_compute_metrics", kWarned, "it changes no metric"},
  };
}

std::vector<Row> rows_of_checkpoints() {
  const std::string save = "t5x.utils.SaveCheckpointConfig",
                    restore = "t5x.utils.RestoreCheckpointConfig";
  const std::string best = "t5x.checkpoints.SaveBestCheckpointer",
                    manager = "t5x.checkpoints.OrbaxCheckpointManagerInterface";
  const std::string by_config = "bind it of utils.SaveCheckpointConfig, as in T5X";
  const std::string position = "the position in the data is a part of every checkpoint";
  return {
      {{save}, "save_dataset", kWarned, position, always},
      {{save}, "keep_dataset_checkpoints", kWarned, position},
      {{best, manager}, "keep", kWarned, by_config},
      {{best, manager}, "save_dtype", kWarned, by_config},
      {{best, manager}, "restore_dtype", kWarned, "bind utils.RestoreCheckpointConfig.dtype"},
      {{best, manager}, "keep_dataset_checkpoints", kWarned, position},
      {{restore},
       "checkpoint_manager_cls",
       kRefused,
       "checkpoints are read by what lies in their folder",
       is_named(manager)},
      {{save},
       "state_transformation_fns",
       kRefused,
       "Python is not run; assignment_map of utils.RestoreCheckpointConfig says which array is "
       "read "
       "from where",
       is_empty},
      {{restore}, "use_gda", kRemoved, "T5X has it no more; delete the line"},
  };
}

std::vector<Row> rows_of_models() {
  const std::string beams = "t5x.decoding.beam_search",
                    sampling = "t5x.decoding.temperature_sample";
  const std::string pjit = "t5x.partitioning.PjitPartitioner",
                    moe = "t5x.contrib.moe.partitioning.MoePjitPartitioner";
  const std::string examples = "t5x.examples.", t5 = ".network.T5Config";
  return {
      {{examples + "t5" + t5, examples + "scalable_t5" + t5, "t5x.contrib.gpu.t5.network.T5Config",
        examples + "decoder_only.network.TransformerConfig"},
       "float32_attention_logits",
       kWarned,
       "logits of attention are float32",
       is_one_of({true})},
      {{beams, sampling},
       "num_decodes",
       kWarned,
       "num_decodes of the model's predict_batch_with_aux decides"},
      {{beams, sampling}, "cache_offset", kWarned, "how keys and values are kept is fixed"},
      {{"t5x.adafactor.Adafactor"},
       "learning_rate",
       kWarned,
       "the trainer's learning_rate_fn gives one at every step, as in T5X"},
      {{pjit, moe}, "params_on_devices", kWarned, "parameters are where they are computed with"},
      {{pjit, moe}, "backend", kWarned, "--device chooses where a run computes"},
      {{moe}, "state_filter_fn", kWarned, "logical_axis_rules say which arrays are sharded"},
  };
}

std::vector<Row> rows_of_dataset_config() {
  const std::string dataset = "t5x.utils.DatasetConfig";
  return {
      {{dataset}, "use_memory_cache", kWarned, "it changes no batch"},
      {{dataset}, "num_prefetch_threads", kWarned, "the number of data threads is fixed"},
      {{dataset}, "num_workers", kWarned, "the number of data threads is fixed"},
      {{dataset},
       "runtime_preprocessors",
       kRefused,
       "preprocessors are a task's: bind them in its seqio.Task",
       is_empty},
      {{dataset},
       "module",
       kRefused,
       "Python cannot be imported; `import MODULE` in a gin file reads MODULE.gin, with tasks in "
       "gin",
       is_known_module},
  };
}

std::vector<Row> rows_of_data() {
  const std::string seqio = "seqio.dataset_providers.";
  const std::string tfds = seqio + "TfdsDataSource";
  const std::vector<std::string> files = {
      seqio + "TextLineDataSource", seqio + "TFExampleDataSource", seqio + "FileDataSource",
      seqio + "ProtoDataSource",    "quintet.data.TsvDataSource",  "quintet.data.JsonlDataSource"};
  std::vector<std::string> counted = files, cached = files, shuffled = files, converters;
  counted.push_back(seqio + "FunctionDataSource");
  cached.insert(cached.end(), {seqio + "FunctionDataSource", tfds});
  shuffled.push_back(seqio + "CacheDatasetPlaceholder");
  for (const std::string& name : data::feature_converter_names())
    converters.push_back("seqio.feature_converters." + name);
  return {
      {shuffled, "file_shuffle_buffer_size", kWarned,
       "the order of reading is a permutation of all examples"},
      {{"seqio.helpers.TruncatedDatasetProvider", "seqio.experimental.FewshotDataSource"},
       "shuffle_buffer_size",
       kWarned,
       "the order of reading is a permutation of all examples"},
      {{"seqio.helpers.mixture_with_missing_task_splits_removed"},
       "add_to_seqio_registry",
       kWarned,
       "what MixtureRegistry.mixtures lists is registered"},
      {counted, "num_input_examples", kWarned, "examples are counted"},
      {cached, "caching_permitted", kWarned, "`quintet cache` writes what it is asked for"},
      {{seqio + "TFExampleDataSource", seqio + "ProtoDataSource"},
       "reader_cls",
       kRefused,
       "TFRecord and ArrayRecord files are read, whichever they are",
       is_named("tf.data.TFRecordDataset")},
      {{tfds}, "tfds_builder_kwargs", kRefused, "data sets are read as they were prepared"},
      {{tfds}, "read_only", kWarned, "data sets are only read", always},
      {{"tf.io.FixedLenSequenceFeature"},
       "allow_missing",
       kWarned,
       "a missing sequence is empty",
       always},
      {{"tf.io.FixedLenSequenceFeature"},
       "default_value",
       kRefused,
       "rows are not padded with a value"},
      {converters, "use_custom_packing_ops", kRefused,
       "bind utils.DatasetConfig.use_custom_packing_ops"},
      {{"seqio.utils.mixing_rate_num_examples", "t5.data.utils.rate_num_examples"},
       "fallback_to_num_input_examples",
       kWarned,
       "examples are counted"},
      {{"t5.data.utils.rate_unsupervised"},
       "task",
       kWarned,
       "the rate is its value for every task"},
      {{"t5.data.preprocessors.random_spans_helper"}, "verbose", kWarned, "nothing is logged"},
      {{"seqio.vocabularies.SentencePieceVocabulary"},
       "use_fast_tokenizer",
       kWarned,
       "there is one implementation"},
      {{"seqio.vocabularies.BertWordPieceVocabulary"}, "token_out_type", kWarned, "ids are int32"},
  };
}

}  // namespace

const gin::IneffectiveTable& ineffective_parameters() {
  static const gin::IneffectiveTable table = [] {
    gin::IneffectiveTable made;
    for (const auto& rows :
         {rows_of_training(), rows_of_evaluation(), rows_of_checkpoints(), rows_of_models(),
          rows_of_dataset_config(), rows_of_data(), rows_of_flaxformer(), rows_of_export()})
      for (const Row& row : rows)
        for (const std::string& name : row.configurables)
          made[name + "." + row.parameter] = {row.verdict, row.reason, row.is_met};
    return made;
  }();
  return table;
}

void check_effects(const gin::Config& config, const std::string& trained) {
  const bool lenient = config.state().options.skip_unknown;
  std::vector<std::string> refused;
  const bool leads = mpi::Session::rank_of_process().value_or(0) == 0;
  for (const gin::IneffectiveBinding& b :
       gin::ineffective_bindings(config, ineffective_parameters())) {
    const std::string what = fmt::format("{}: {} = {}", b.place, b.name, b.value.repr());
    if (b.verdict != kWarned && !lenient)
      refused.push_back(fmt::format("{}: cannot be asked for: {}", what, b.reason));
    else if (leads && (trained.empty() || !b.place.starts_with(trained + ":")))
      print_warning("{} has no effect: {}", what, b.reason);
  }
  if (!refused.empty()) gin::throw_problems(refused);
}

void print_unknown(const gin::Config& config) {
  if (mpi::Session::rank_of_process().value_or(0) != 0) return;
  for (const std::string& unknown : config.unknown()) fmt::print(stderr, "unknown: {}\n", unknown);
}

void warn_of_dtype(const ConfiguredModel& model) {
  const std::string& dtype = model.model->spec().dtype;
  if (dtype != "float32" && Device::current().is_cpu() &&
      mpi::Session::rank_of_process().value_or(0) == 0)
    print_warning(
        "{}: dtype = '{}' has no effect on a CPU, which computes in float32; bind "
        "'float32', or compute on a GPU (--device)",
        model.name, dtype);
}

void warn_of_ignored(const RestoreCheckpointConfig& restore, const gin::Arguments& args) {
  if (mpi::Session::rank_of_process().value_or(0) != 0) return;
  const std::string& verb = args.target().name;
  if (restore.restore_dataset)
    print_warning(
        "{}: restore_dataset = True has no effect: data are read from their "
        "beginning",
        verb);
}

}  // namespace quintet
