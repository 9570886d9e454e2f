// `quintet eval`: metrics of a task over the checkpoints of a run, or as T5X's eval.py from gin files.

#include "apps/cli.h"
#include "apps/compute_flags.h"
#include "apps/data_flags.h"
#include "apps/evaluate.h"
#include "apps/quantize_flag.h"
#include "apps/run_vocabularies.h"
#include "apps/trained_dataset.h"
#include "apps/verbs.h"

namespace quintet {
namespace {

struct EvalFlags {
  TrainedDatasetFlags set;
  std::string output_dir;
  int64_t samples = 0, num_examples = 0;
  QuantizeFlag quantize;
  ComputeFlags compute;
};

void add_flags(CommandLine& cli, EvalFlags& flags) {
  CLI::App& app = cli.app();
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 40);
  flags.set.add_to(app);
  app.add_option("--num_examples", flags.num_examples, "at most so many a task")->check(positive);
  app.add_option("--output_dir", flags.output_dir,
                 "where seqio's files of metrics and predictions go; default: nowhere");
  app.add_option("--samples", flags.samples, "predictions to show on stderr");
  flags.quantize.add_to(app);
  flags.compute.add_to(app);
  app.add_option("--gin_file", "instead of --model_dir: a gin file with eval_script.evaluate");
  app.add_option("--gin_bindings", "a binding; may be repeated");
  app.add_option("--gin_search_paths", "folders of gin files, with commas between");
  describe_data_flags(app);
}

int evaluate_run(const EvalFlags& flags, const std::vector<std::string>& bindings) {
  const TrainedModel trained = open_trained_model(flags.set.model_dir, bindings, /*load=*/false);
  EvaluateConfig config;
  config.model = trained.model;
  config.dataset = flags.set.dataset_of(trained, "quintet eval");
  config.restore = flags.set.restore_of(trained);
  config.verify_vocabs = flags.set.verifies_vocabs(trained);
  config.output_dir = flags.output_dir;
  config.weights = flags.quantize.type();
  if (flags.num_examples > 0) config.inference_evaluator.options.num_examples = flags.num_examples;
  return evaluate(
      std::move(config), [&](const data::DatasetConfig& set) { return trained.session->task(set); },
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
                  "quintet eval --gin_file=my_eval.gin");
  add_flags(cli, flags);
  if (!cli.parse(left)) return 0;
  flags.compute.start();
  QT_CHECK(
      flags.set.model_dir.empty() != gin_line.files.empty(),
      "quintet eval: name a run with --model_dir=DIR, or a configuration with --gin_file=FILE{}",
      gin_line.files.empty() ? "" : ", not both");
  if (!flags.set.model_dir.empty()) return evaluate_run(flags, gin_line.bindings);
  Session* session_of_run = nullptr;
  int code = 0;
  const auto body = [&](const gin::Arguments& arguments) -> gin::Value {
    EvaluateConfig config = evaluate_config_from(arguments);
    config.weights = flags.quantize.type();
    code = evaluate(
        std::move(config),
        [&](const data::DatasetConfig& set) { return session_of_run->task(set); }, flags.samples);
    return {};
  };
  Session session(gin_line, {.train = {}, .evaluate = body, .infer = {}},
                  {.main_modules = {"t5x.eval"}});
  session_of_run = &session;
  use_copies_of(session.config(), "t5x.eval.evaluate.restore_checkpoint_cfg");
  session.config().call("t5x.eval.evaluate");
  return code;
}

}  // namespace quintet
