// `quintet eval`: metrics of a task over the checkpoints of a run, or as T5X's eval.py from gin files.


#include "apps/cli.h"
#include "apps/compute_flags.h"
#include "apps/data_flags.h"
#include "apps/evaluate.h"
#include "apps/trained_model.h"
#include "apps/verbs.h"

namespace quintet {
namespace {

struct EvalFlags {
  std::string model_dir, task, split, checkpoint = "latest", output_dir;
  int64_t samples = 0, batch_size = 0, num_examples = 0;
  ComputeFlags compute;
};

void add_flags(CommandLine& cli, EvalFlags& flags) {
  CLI::App& app = cli.app();
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 40);
  app.add_option("--model_dir", flags.model_dir, "the directory of a training run, or a checkpoint");
  app.add_option("--checkpoint", flags.checkpoint, "latest, all, or a step");
  app.add_option("--task", flags.task, "a task or mixture; default: the run's own");
  app.add_option("--split", flags.split, "default: the run's own, else validation");
  app.add_option("--batch_size", flags.batch_size, "examples at a time")->check(positive);
  app.add_option("--num_examples", flags.num_examples, "at most so many a task")->check(positive);
  app.add_option("--output_dir", flags.output_dir,
                 "where seqio's files of metrics and predictions go; default: nowhere");
  app.add_option("--samples", flags.samples, "predictions to show on stderr");
  flags.compute.add_to(app);
  app.add_option("--gin_file", "instead of --model_dir: a gin file with eval_script.evaluate");
  app.add_option("--gin_bindings", "a binding; may be repeated");
  app.add_option("--gin_search_paths", "folders of gin files, with commas between");
  describe_data_flags(app);
}

/// The evaluation set of the run's configuration, changed as the flags say.
data::DatasetConfig dataset_of(const TrainedModel& trained, const EvalFlags& flags) {
  const gin::Config& config = trained.session->config();
  data::DatasetConfig dataset;
  for (const char* name : {"infer_eval_dataset_cfg", "train_eval_dataset_cfg"}) {
    const gin::Value value = config.evaluate(std::string("t5x.train.train.") + name);
    if (value.is_none()) continue;
    dataset = gin::as<data::DatasetConfig>(value, {name});
    break;
  }
  if (dataset.batch_size == 0) dataset.batch_size = 32;
  if (dataset.split.empty() || dataset.split == "train") dataset.split = "validation";
  dataset.pack = dataset.shuffle = false;
  if (!flags.task.empty()) {
    dataset.mixture_or_task = nullptr;
    dataset.mixture_or_task_name = flags.task;
  }
  QT_CHECK(dataset.mixture_or_task || !dataset.mixture_or_task_name.empty(),
           "quintet eval: the run has no evaluation set of its own; name a task with --task");
  if (!flags.split.empty()) dataset.split = flags.split;
  if (flags.batch_size > 0) dataset.batch_size = flags.batch_size;
  return dataset;
}

RestoreCheckpointConfig restore_of(const TrainedModel& trained, const EvalFlags& flags) {
  const std::filesystem::path path = flags.model_dir;
  RestoreCheckpointConfig restore;
  restore.path = {trained.model_dir.string()};
  if (std::filesystem::weakly_canonical(path) != std::filesystem::weakly_canonical(trained.model_dir)) {
    restore.path = {path.string()};
    restore.mode = "specific";
  } else if (flags.checkpoint == "all") {
    restore.mode = "all";
  } else if (flags.checkpoint != "latest") {
    QT_CHECK(flags.checkpoint.find_first_not_of("0123456789") == std::string::npos,
             "--checkpoint={}: expected latest, all, or a step", flags.checkpoint);
    restore.path = {(trained.model_dir / ("checkpoint_" + flags.checkpoint)).string()};
    restore.mode = "specific";
  }
  return restore;
}

int evaluate_run(const EvalFlags& flags, const std::vector<std::string>& bindings) {
  const TrainedModel trained = open_trained_model(flags.model_dir, bindings, /*load=*/false);
  EvaluateConfig config;
  config.model = trained.model;
  config.dataset = dataset_of(trained, flags);
  config.restore = restore_of(trained, flags);
  config.output_dir = flags.output_dir;
  if (flags.num_examples > 0) config.inference_evaluator.options.num_examples = flags.num_examples;
  return evaluate(std::move(config),
                  [&](const data::DatasetConfig& set) { return trained.session->task(set); },
                  flags.samples);
}

}  // namespace

int run_eval(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  const gin::CommandLine gin_line = extract_data_command_line(left);
  EvalFlags flags;
  CommandLine cli("eval", "Metrics of a task over checkpoints: JSON lines on stdout.",
                  "quintet eval --model_dir=/tmp/numbers --samples=10\n"
                  "quintet eval --model_dir=/tmp/numbers --checkpoint=all --task=number_to_words\n"
                  "quintet eval --gin_file=my_t5.gin --gin_file=t5x/configs/runs/eval.gin");
  add_flags(cli, flags);
  if (!cli.parse(left)) return 0;
  flags.compute.start();
  QT_CHECK(flags.model_dir.empty() != gin_line.files.empty(),
           "quintet eval: name a run with --model_dir=DIR, or a configuration with --gin_file=FILE");
  if (!flags.model_dir.empty()) return evaluate_run(flags, gin_line.bindings);
  Session* session_of_run = nullptr;
  int code = 0;
  const auto body = [&](const gin::Arguments& arguments) -> gin::Value {
    code = evaluate(evaluate_config_from(arguments),
                    [&](const data::DatasetConfig& set) { return session_of_run->task(set); },
                    flags.samples);
    return {};
  };
  Session session(gin_line, {.train = {}, .evaluate = body}, {.main_modules = {"t5x.eval"}});
  session_of_run = &session;
  session.config().call("t5x.eval.evaluate");
  return code;
}

}  // namespace quintet
