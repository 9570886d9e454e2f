#include "apps/config/inference_config.h"

#include "apps/config/decoding_config.h"
#include "apps/config/gin_flags.h"
#include "apps/config/ineffective.h"
#include "data/configurables/configurables.h"
#include "data/tasks/gin_types.h"
#include "data/tasks/infer_task.h"
#include "runtime/base/files/path_map.h"

namespace quintet {
namespace {

constexpr const char *kWriter = "t5x.infer.write_inferences_to_file",
                     *kMerger = "t5x.infer.merge_chunks_to_file";

/// The name, with its scopes, of the function of ours that an argument of infer names, or the user's own.
std::pair<std::string, data::WorkersPtr> own_function(const gin::Config& bound,
                                                      const std::string& parameter,
                                                      const char* ours) {
  const std::string name = "t5x.infer.infer." + parameter;
  const gin::Value value = bound.query(name) == nullptr ? gin::Value() : bound.evaluate(name);
  if (value.is_none()) return {ours, nullptr};
  const auto* callable = value.get_if<gin::Callable>();
  if (callable != nullptr && callable->name() == ours) return {callable->scoped_name(), nullptr};
  return {"", data::own_process(value, {name}, fmt::format("@{}", ours))};
}

data::InferenceLineOptions line_options(const gin::Arguments& args) {
  return {.include_all_inputs = args.get<bool>("include_all_inputs"),
          .input_fields_to_include =
              args.get<std::optional<std::vector<std::string>>>("input_fields_to_include"),
          .output_ids = args.get<bool>("output_ids")};
}

gin::Value make_infer_task(const gin::Arguments& args) {
  data::InferTaskConfig config;
  const gin::Value paths = args.value("paths");
  config.paths = paths.get_if<std::string>() != nullptr
                     ? std::vector{args.get<std::string>("paths")}
                     : args.get<std::vector<std::string>>("paths");
  config.file_type = args.get<std::string>("file_type");
  config.inputs_key = args.get<std::string>("inputs_key");
  config.targets_key = args.get<std::optional<std::string>>("targets_key").value_or("");
  config.features = args.get<data::Features>("features");
  config.task_id = args.get<std::optional<std::string>>("task_id").value_or("");
  return gin::to_value(data::infer_task(config));
}

}  // namespace

void register_inference(gin::Registry& registry,
                        std::function<gin::Value(const gin::Arguments&)> run) {
  const gin::Value none;
  // Named as infer's write_fn; infer reads its parameters.
  registry.add(kWriter,
               {{"include_all_inputs", false},
                {"input_fields_to_include", none},
                {"output_ids", false},
                {"json_encoder_cls", none}},
               [](const gin::Arguments&) -> gin::Value {
                 fail(ExitCode::kUsage, "write_inferences_to_file is used as @ without ()");
               });
  registry.add(kMerger, {}, [](const gin::Arguments&) -> gin::Value {
    fail(ExitCode::kUsage, "merge_chunks_to_file is used as @ without ()");
  });
  registry.add(
      "t5x.infer.create_task_from_tfexample_file",
      {{"paths"}, {"file_type"}, {"inputs_key"}, {"targets_key"}, {"features"}, {"task_id", none}},
      make_infer_task);
  registry.add("t5x.infer.infer",
               {{"mode"},
                {"model"},
                {"dataset_cfg"},
                {"restore_checkpoint_cfg"},
                {"partitioner"},
                {"output_dir"},
                {"checkpoint_period"},
                {"shard_id", 0},
                {"num_shards", 1},
                {"merge_chunked_results", true},
                {"write_fn", none},
                {"checkpoint_ds_iter", true},
                {"train_state_initializer_cls", none},
                {"fallback_init_rng", none},
                {"merge_fn", none},
                {"summarize_config_fn", none},
                {"verify_matching_vocabs_fn", false, std::nullopt},  // T5X's: it verifies
                {"output_vocab_feature_name", "targets"},
                {"file_extension", "jsonl"},
                {"keep_aux_as_numpy", false},
                {"use_orbax", true}},
               std::move(run));
}

InferenceConfig inference_config_from(const gin::Arguments& args) {
  InferenceConfig config;
  config.mode = args.get<std::string>("mode");
  config.model = configured_model(args);
  config.dataset = args.get<data::DatasetConfig>("dataset_cfg");
  config.restore = restore_config_from(args);
  warn_of_ignored(config.restore, args);
  config.output_dir = local_path(args.get<std::string>("output_dir"));
  config.checkpoint_period = args.get<int64_t>("checkpoint_period");
  config.shard = {args.get<int64_t>("shard_id"), args.get<int64_t>("num_shards")};
  config.merge_chunked_results = args.get<bool>("merge_chunked_results");
  config.checkpoint_ds_iter = args.get<bool>("checkpoint_ds_iter");
  config.output_vocab_feature_name = args.get<std::string>("output_vocab_feature_name");
  config.file_extension = args.get<std::string>("file_extension");
  set_writers(config, args.config());
  config.verify_vocabs = verifies_vocabs(args.config(), "t5x.infer.infer");
  config.partitioner = args.get<PartitionerConfig>("partitioner");
  config.config_text = args.config().config_str();
  return config;
}

void set_writers(InferenceConfig& config, const gin::Config& bound) {
  config.merge_fn = own_function(bound, "merge_fn", kMerger).second;
  const auto [writer, write_fn] = own_function(bound, "write_fn", kWriter);
  config.write_fn = write_fn;
  config.line = write_fn != nullptr
                    ? data::InferenceLineOptions{.include_all_inputs = true, .output_ids = true}
                    : line_options(bound.arguments(writer));
}

void InferenceConfig::check() const {
  QT_CHECK(mode == "predict" || mode == "score" || mode == "predict_with_aux",
           "infer.mode: expected 'predict', 'score' or 'predict_with_aux', found '{}'", mode);
  QT_CHECK(mode != "score" || weights.value_or(WeightType::f32) == WeightType::f32,
           "infer: --quantize is for predictions; scores are computed in float32");
  QT_CHECK(checkpoint_period > 0, "infer.checkpoint_period: {} must be positive",
           checkpoint_period);
  QT_CHECK(shard.num_shards > 0 && shard.index >= 0 && shard.index < shard.num_shards,
           "infer: shard_id {} must lie between 0 and num_shards - 1 = {}", shard.index,
           shard.num_shards - 1);
  QT_CHECK(dataset.batch_size > 0, "infer: batch_size {} must be positive", dataset.batch_size);
  QT_CHECK(!dataset.pack && !dataset.shuffle,
           "infer: DatasetConfig.pack and shuffle must be False: answers are written in order");
  QT_CHECK(
      !(line.include_all_inputs && line.input_fields_to_include),
      "write_inferences_to_file: give include_all_inputs or input_fields_to_include, not both");
  QT_CHECK(!output_dir.empty(), "infer.output_dir: name a folder");
}

}  // namespace quintet
