#include "apps/export/export_source.h"

#include "apps/config/decoding_config.h"
#include "apps/input/run_vocabularies.h"
#include "apps/model/checkpoint_parameters.h"
#include "apps/model/quantized_model.h"
#include "apps/model/restored_checkpoint.h"
#include "apps/model/trained_dataset.h"
#include "apps/model/trained_model.h"
#include "checkpoint/open/open_checkpoint.h"
#include "data/tasks/gin_types.h"
#include "runtime/base/files/path_map.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {
namespace {

/// T5X's output_dir: a folder, or one for each platform, of which the CPU's counts.
std::filesystem::path output_dir_of(const gin::Arguments& args) {
  const gin::Value value = args.value("output_dir");
  if (value.get_if<std::string>() != nullptr)
    return local_path(args.get<std::string>("output_dir"));
  const auto folders = args.get<std::map<std::string, std::string>>("output_dir");
  QT_CHECK(!folders.empty(), "{}: expected a folder, or {{'cpu': folder}}, found none",
           args.where("output_dir").text);
  const auto cpu = folders.find("cpu");
  return local_path(cpu == folders.end() ? folders.begin()->second : cpu->second);
}

/// That what requests are turned into ids with is the model's own, as T5X exports it.
void check_features(const ExportConfig& config, GinSession& session, const gin::Arguments& args) {
  QT_CHECK(config.task.has_value() != config.features.has_value(),
           "{}: bind either output_features or mixture_or_task_name of export_lib.save, and the "
           "other to None",
           args.where("output_features").text);
  if (config.task) return verify_matching_vocabs(*config.model, *session.task(*config.task));
  const data::VocabularyRecords own = vocabularies_of(*config.model);
  for (const auto& [feature, role] :
       {std::pair("inputs", "model.input_vocabulary"), {"targets", "model.output_vocabulary"}}) {
    const auto* found = data::find_feature(*config.features, feature);
    const auto wanted = own.find(role);
    if (found == nullptr || wanted == own.end()) continue;
    const std::string other = difference(wanted->second, data::record_of(*found->vocabulary));
    QT_CHECK(other.empty(),
             "{}: '{}' has another vocabulary than the model: {}; bind "
             "seqio.Feature.vocabulary = @models.get_{}_vocabulary()",
             args.where("output_features").text, feature, other,
             feature == std::string("inputs") ? "input" : "output");
  }
}

}  // namespace

ExportConfig export_config_from(const gin::Arguments& args) {
  return {.model = configured_model(args),
          .restore = args.get<RestoreCheckpointConfig>("restore_checkpoint_cfg"),
          .features = args.get<std::optional<data::Features>>("output_features"),
          .task = args.get<std::optional<std::string>>("mixture_or_task_name"),
          .lengths = args.get<data::Lengths>("task_feature_lengths"),
          .output_dir = output_dir_of(args),
          .model_name = args.get<std::string>("model_name")};
}

ExportSource source_of(const ExportFlags& flags, const gin::CommandLine& gin_line) {
  TrainedModel trained = open_merged_model(flags.model_dir, gin_line, Load::nothing, flags.adapter);
  ExportSource source;
  source.from = open_checkpoint(local_path(flags.model_dir));
  source.generation_config = kept_generation_config(*source.from);
  source.defaults = generation_defaults_of(*source.from);
  if (!flags.adapter.empty()) source.from = adapted(source.from, flags.adapter);
  source.config = trained.session->config().config_str();
  source.name = flags.name.empty() ? trained.name : flags.name;
  source.output = flags.output;
  if (const auto dataset = dataset_of_run(trained.session->config()))
    source.answer_length = data::find_length(dataset->task_feature_lengths, "targets");
  if (source.defaults && source.defaults->max_new_tokens)
    source.answer_length = source.defaults->max_new_tokens;
  source.model = std::move(trained.model);
  source.session = std::move(trained.session);
  return source;
}

ExportSource source_of(const ExportFlags& flags, GinSession& session, const gin::Arguments& args) {
  const ExportConfig config = export_config_from(args);
  check_features(config, session, args);
  const auto folders = checkpoint_folders(config.restore);
  QT_CHECK(folders.size() == 1,
           "{}: means {} checkpoints; one is exported: mode = 'latest' or "
           "'specific'",
           args.where("restore_checkpoint_cfg").text, folders.size());
  ExportSource source;
  source.model = config.model;
  source.from = open_checkpoint(folders.front());
  check_recorded(*source.from, vocabularies_of(*source.model));
  source.from = restored(source.from, config.restore, shapes_of(source.model->model->parameters()));
  if (!flags.adapter.empty()) source.from = adapted(source.from, flags.adapter);
  if (flags.output.empty()) make_folders(config.output_dir);
  source.output =
      flags.output.empty()
          ? (config.output_dir / (flags.is_onnx() ? "model.onnx" : "model.safetensors")).string()
          : flags.output;
  source.name = flags.name.empty() ? std::filesystem::path(config.model_name).filename().string()
                                   : flags.name;
  source.answer_length = data::find_length(config.lengths, "targets");
  source.config = args.config().config_str();
  return source;
}

std::optional<WeightType> quantization_of(const ExportSource& source, std::optional<DType> dtype,
                                          std::optional<WeightType> weights) {
  const std::optional<WeightType> stored = quantization_of(*source.from);
  QT_CHECK(
      !stored || (!dtype && !weights),
      "{}: holds weights in {}, which are written as they are: leave out --dtype and --quantize",
      source.from->folder().string(), name_of(stored.value_or(WeightType::f32)));
  if (!stored) check_parameters(*source.from, source.model->model->parameters());
  return stored ? stored : weights;
}

void ExportFlags::add_to(CLI::App& app) {
  app.add_option("MODEL,--model_dir,--model", model_dir,
                 "the directory of a training run, a checkpoint, a bundle or a Hugging Face "
                 "directory")
      ->transform(mapped_path);
  add_adapter_flag(app, adapter);
  app.add_option("--output", output,
                 "the file, which must not be there; with a gin file by default "
                 "OUTPUT_DIR/model.safetensors, or .onnx")
      ->transform(mapped_path);
  app.add_option(
         "--format", format,
         "bundle: one file with all that a model is, for every verb here; onnx: the network "
         "alone, for other programs")
      ->capture_default_str()
      ->check(CLI::IsMember({"bundle", "onnx"}));
  app.add_option("--dtype", dtype, "round the parameters to this type; default: as they are")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  quantize.add_to(app);
  app.add_flag("--external_data", external_data,
               "with --format=onnx: weights in OUTPUT.data beside the file, as they are where they "
               "have 2 GiB or more");
  app.add_option("--name", name,
                 "by which clients of serve call the model; default: the directory's last part");
}

void ExportFlags::check() const {
  QT_CHECK(model_dir.empty() || !output.empty(),
           "quintet export: name the file that is written with --output=FILE");
  QT_CHECK(dtype.empty() || quantize.name.empty(),
           "quintet export: --dtype={} and --quantize={} exclude each other", dtype, quantize.name);
  QT_CHECK(quantize.name != "int8_dynamic" && quantize.name != "f32",
           "--quantize={}: expected bf16, int8 or fp8; {}", quantize.name,
           quantize.name == "f32" ? "a run's weights are float32"
                                  : "write int8, and name int8_dynamic where the model is used");
  QT_CHECK(!is_onnx() || quantize.name != "fp8",
           "--quantize=fp8: the operators of an ONNX file here know no such numbers; use int8, or "
           "write a bundle");
  QT_CHECK(is_onnx() || !external_data,
           "--external_data: a bundle is one file of any size; use --format=onnx, or leave the "
           "flag out");
}

}  // namespace quintet
