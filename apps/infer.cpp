// `quintet infer`: predictions or scores of a data set as JSON lines, as T5X's infer.py from gin
// files, or of a run's model for a task or a file.

#include "apps/cli.h"
#include "apps/compute_flags.h"
#include "apps/data_flags.h"
#include "apps/inference.h"
#include "apps/quantize_flag.h"
#include "apps/run_vocabularies.h"
#include "apps/trained_dataset.h"
#include "apps/verbs.h"
#include "data/infer_task.h"

namespace quintet {
namespace {

struct InferFlags {
  TrainedDatasetFlags set;
  std::string input, mode = "predict", output_dir;
  int64_t checkpoint_period = 100, num_shards = 1;
  std::optional<int64_t> shard_id;
  data::InferenceLineOptions line;
  QuantizeFlag quantize;
  ComputeFlags compute;
  RankFlags ranks;
};

void add_flags(CommandLine& cli, InferFlags& flags) {
  CLI::App& app = cli.app();
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 40);
  flags.set.add_to(app);
  app.add_option(
      "--input", flags.input,
      "instead of --task: a file with texts 'inputs' (and 'targets', for scores), .jsonl, or "
      ".tfrecord of tf.Example; a pattern for several");
  app.add_option("--mode", flags.mode, "predict, score, or predict_with_aux")
      ->capture_default_str();
  app.add_option("--output_dir", flags.output_dir, "where results go");
  app.add_option("--checkpoint_period", flags.checkpoint_period,
                 "batches of a chunk, after which a killed run goes on")
      ->capture_default_str()
      ->check(positive);
  app.add_option("--shard_id", flags.shard_id, "which part of the data set");
  app.add_option("--num_shards", flags.num_shards, "parts that jobs share the data set in")
      ->check(positive);
  app.add_flag("--include_all_inputs", flags.line.include_all_inputs, "write all features");
  app.add_flag("--output_ids", flags.line.output_ids, "write the predictions' ids, too");
  flags.quantize.add_to(app);
  flags.compute.add_to(app);
  flags.ranks.add_to(app);
  app.add_option("--gin_file", "instead of --model_dir: a gin file with infer_script.infer");
  app.add_option("--gin_bindings", "a binding; may be repeated");
  app.add_option("--gin_search_paths", "folders of gin files, with commas between");
  describe_data_flags(app);
}

/// A task of the files that --input means, with the model's vocabularies.
data::ProviderPtr task_of(const InferFlags& flags, const ConfiguredModel& model) {
  data::InferTaskConfig config;
  config.paths = {flags.input};
  config.file_type = flags.input.find(".jsonl") != std::string::npos ? "jsonl" : "tfrecord";
  QT_CHECK(
      config.file_type == "jsonl" || flags.input.find("tfrecord") != std::string::npos,
      "quintet infer: --input={}: expected a name with .jsonl (a JSON object with \"inputs\" on "
      "each line) or .tfrecord (tf.Example); 'quintet generate --input' answers plain lines",
      flags.input);
  if (flags.mode == "score") config.targets_key = "targets";
  for (const auto& [name, value] :
       {std::pair("inputs", &model.input_vocabulary), {"targets", &model.output_vocabulary}}) {
    auto vocabulary = value->object_as<const data::Vocabulary>();
    QT_CHECK(vocabulary != nullptr,
             "quintet infer: the model has no vocabulary, so its ids are no text");
    config.features.emplace_back(name, data::Feature{.vocabulary = vocabulary});
  }
  return data::infer_task(config);
}

int infer_run(const InferFlags& flags, const std::vector<std::string>& bindings,
              const Ranks& ranks) {
  const TrainedModel trained = open_trained_model(flags.set.model_dir, bindings, /*load=*/false);
  InferConfig config;
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
  config.line = flags.line;
  config.weights = flags.quantize.type();
  config.config_text = trained.session->config().config_str();
  return run_inference(config, ranks,
                       [&](const data::DatasetConfig& set) { return trained.session->task(set); });
}

}  // namespace

int run_infer(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  gin::CommandLine gin_line = extract_data_command_line(left);
  InferFlags flags;
  CommandLine cli(
      "infer", "Predictions or scores of a data set, as JSON lines in --output_dir.",
      "quintet infer --model_dir=/tmp/numbers --input=questions.jsonl --output_dir=/tmp/answers\n"
      "quintet infer --model_dir=/tmp/numbers --task=number_words --mode=score "
      "--output_dir=/tmp/scores\n"
      "mpirun -n 4 quintet infer --gin_file=my_infer.gin");
  add_flags(cli, flags);
  if (!cli.parse(left)) return 0;
  QT_CHECK(
      flags.set.model_dir.empty() != gin_line.files.empty(),
      "quintet infer: name a run with --model_dir=DIR, or a configuration with --gin_file=FILE{}",
      gin_line.files.empty() ? "" : ", not both");
  QT_CHECK(flags.set.model_dir.empty() || !flags.output_dir.empty(),
           "quintet infer: name a folder for the results with --output_dir=DIR");
  Ranks ranks(flags.ranks);
  ranks.agree_on("build", build_text());
  ranks.agree_on("command line", fmt::format("{}", fmt::join(args, "\n")));
  flags.compute.start();
  ranks.open(Device::current());
  if (!flags.set.model_dir.empty()) return infer_run(flags, gin_line.bindings, ranks);
  // T5X's own flag over the configuration.
  if (flags.shard_id)
    gin_line.bindings.push_back(fmt::format("infer_script.infer.shard_id = {}", *flags.shard_id));
  Session* session_of_run = nullptr;
  int code = 0;
  const auto body = [&](const gin::Arguments& arguments) -> gin::Value {
    InferConfig config = infer_config_from(arguments);
    config.weights = flags.quantize.type();
    code = run_inference(config, ranks,
                         [&](const data::DatasetConfig& set) { return session_of_run->task(set); });
    return {};
  };
  Session session(gin_line, {.train = {}, .evaluate = {}, .infer = body},
                  {.main_modules = {"t5x.infer"}});
  session_of_run = &session;
  use_copies_of(session.config(), "t5x.infer.infer.restore_checkpoint_cfg");
  session.config().call("t5x.infer.infer");
  return code;
}

}  // namespace quintet
