#include "apps/infer/inference_flags.h"

#include "apps/flags/command_line.h"
#include "data/tasks/infer_task.h"

namespace quintet {

void InferenceFlags::add_to(CLI::App& app) {
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 40);
  set.add_to(app);
  app.add_option(
      "--input", input,
      "instead of --task: a .jsonl file, or .tfrecord of tf.Example, with texts 'inputs' (and "
      "'targets', for scores; --inputs_key and --targets_key name other fields); a pattern for "
      "several "
      "files");
  app.add_option("--inputs_key", inputs_key, "the field of --input that holds the inputs");
  app.add_option("--targets_key", targets_key, "with --mode=score: the field of the targets");
  app.add_option("--mode", mode, "predict, score, or predict_with_aux")->capture_default_str();
  app.add_option("--output_dir", output_dir, "folder for the results")->transform(mapped_path);
  app.add_option("--checkpoint_period", checkpoint_period,
                 "batches per chunk; an interrupted job resumes after its last complete chunk")
      ->capture_default_str()
      ->check(positive);
  app.add_option("--shard_id", shard_id,
                 "which part of the data set this job takes, from 0; default: 0");
  app.add_option("--num_shards", num_shards, "number of parts into which jobs divide the data set")
      ->check(positive);
  app.add_flag("--include_all_inputs", line.include_all_inputs,
               "also write all other features of the inputs");
  app.add_flag("--output_ids", line.output_ids, "also write the predictions' token ids");
  decode.add_to(app);
  partitions.add_to(app);
  quantize.add_to(app);
  cache.add_to(app);
  compute.add_to(app);
  format.add_to(app);
  launch.add_dry_run(app);
  launch.add_run_mode(app, {"infer"});
  launch.add_to(app);
  ranks.add_to(app);
}

namespace {

/// A task of the files that --input means, with the model's vocabularies.
data::ProviderPtr task_of(const InferenceFlags& flags, const ConfiguredModel& model) {
  data::InferTaskConfig config;
  config.paths = {flags.input};
  config.file_type = flags.input.find(".jsonl") != std::string::npos ? "jsonl" : "tfrecord";
  QT_CHECK(
      config.file_type == "jsonl" || flags.input.find("tfrecord") != std::string::npos,
      "quintet infer: --input={}: expected a name with .jsonl (a JSON object with \"inputs\" on "
      "each line) or .tfrecord (tf.Example); 'quintet generate --input' answers plain lines",
      flags.input);
  config.inputs_key = flags.inputs_key;
  if (flags.mode == "score") config.targets_key = flags.targets_key;
  for (const auto& [name, value] :
       {std::pair("inputs", &model.input_vocabulary), {"targets", &model.output_vocabulary}}) {
    auto vocabulary = value->object_as<const data::Vocabulary>();
    QT_CHECK(vocabulary != nullptr,
             "quintet infer: the model has no vocabulary, so its ids are no text");
    config.features.emplace_back(name, data::Feature{.vocabulary = vocabulary});
  }
  return data::infer_task(config);
}

}  // namespace

InferenceConfig inference_config_of(const TrainedModel& trained, const InferenceFlags& flags) {
  QT_CHECK(!flags.input.empty() || (flags.inputs_key == "inputs" && flags.targets_key == "targets"),
           "quintet infer: --inputs_key and --targets_key are about the file of --input");
  QT_CHECK(flags.mode == "score" || flags.targets_key == "targets",
           "quintet infer: --targets_key={}: targets are read with --mode=score alone",
           flags.targets_key);
  InferenceConfig config;
  config.mode = flags.mode;
  config.model = trained.model;
  config.dataset = flags.set.dataset_of(trained, "quintet infer", !flags.input.empty());
  if (config.dataset.task_feature_lengths.empty())
    if (const gin::Value trained_on =
            trained.session->config().evaluate("t5x.train.train.train_dataset_cfg");
        !trained_on.is_none())
      config.dataset.task_feature_lengths =
          gin::as<data::DatasetConfig>(trained_on, {"train_dataset_cfg"}).task_feature_lengths;
  if (!flags.input.empty()) {
    config.dataset.mixture_or_task = task_of(flags, *trained.model);
    config.dataset.split = "infer";
  }
  config.restore = flags.set.restore_of(trained);
  config.verify_vocabs = flags.set.verifies_vocabs(trained);
  config.output_dir = flags.output_dir;
  config.checkpoint_period = flags.checkpoint_period;
  config.shard = {flags.shard_id.value_or(0), flags.num_shards};
  set_writers(config, trained.session->config());
  config.line.include_all_inputs |= flags.line.include_all_inputs;
  config.line.output_ids |= flags.line.output_ids;
  config.weights = flags.quantize.type();
  config.partitioner.num_partitions = flags.partitions.count;
  config.config_text = trained.session->config().config_str();
  return with_decode(std::move(config), flags.decode, flags.cache);
}

InferenceConfig with_decode(InferenceConfig config, const DecodeFlags& decode,
                            const CacheFlag& cache) {
  decode.check("infer");
  QT_CHECK(decode.text().empty() || config.mode != "score",
           "quintet infer: with --mode=score nothing is generated; leave out{}", decode.text());
  QT_CHECK(!cache.is_given() || config.mode != "score",
           "quintet infer: --kv_cache_dtype={}: scores of given targets read no cache; leave the "
           "flag out with --mode=score",
           cache.name);
  config.decode = decode;
  config.cache_type = cache.type();
  if (decode.max_tokens > 0) {  // answers are as long as targets may be
    auto& lengths = config.dataset.task_feature_lengths;
    std::erase_if(lengths, [](const auto& length) { return length.first == "targets"; });
    lengths.emplace_back("targets", decode.max_tokens);
  }
  return config;
}

}  // namespace quintet
