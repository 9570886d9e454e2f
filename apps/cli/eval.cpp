// `quintet eval`: metrics of a task over the checkpoints of a run, or as T5X's eval.py from gin files.

#include "apps/cli/verbs.h"
#include "apps/config/entry_point.h"
#include "apps/evaluate/evaluation.h"
#include "apps/evaluate/evaluation_flags.h"
#include "apps/flags/command_line.h"
#include "apps/flags/data_flags.h"
#include "apps/input/run_vocabularies.h"
#include "runtime/mpi/session.h"

namespace quintet {

int run_eval(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  const gin::CommandLine gin_line = extract_data_command_line(left);
  EvaluationFlags flags;
  CommandLine cli("eval", "Computes a task's metrics for checkpoints: JSON lines on stdout.",
                  "quintet eval --model_dir=/tmp/numbers --samples=10\n"
                  "quintet eval --model_dir=/tmp/numbers --checkpoint=all --task=number_to_words\n"
                  "quintet eval --gin_file=my_eval.gin");
  flags.add_to(cli.app());
  describe_gin_flags(cli.app(), "instead of --model_dir: a gin file with eval_script.evaluate");
  describe_data_flags(cli.app());
  if (!cli.parse(left)) return 0;
  flags.launch.check();
  const mpi::Session ranks;
  QT_CHECK(ranks.size() == 1,
           "quintet eval: expected one process, found {} ranks, which would each evaluate all "
           "examples; start it without mpirun or srun ('quintet infer' shares examples)",
           ranks.size());
  flags.compute.start();
  QT_CHECK(
      flags.set.model_dir.empty() != gin_line.files.empty(),
      "quintet eval: name a run with --model_dir=DIR, or a configuration with --gin_file=FILE{}",
      gin_line.files.empty() ? "" : ", not both");
  if (!flags.set.model_dir.empty()) {
    const TrainedModel trained = open_trained_model(flags.set.model_dir, gin_line, Load::nothing);
    return run_evaluation(
        evaluation_config_of(trained, flags),
        [&](const data::DatasetConfig& set) { return trained.session->task(set); }, flags.samples);
  }
  const auto prepare = [](GinSession& session) {
    use_copies_of(session.config(), "t5x.eval.evaluate.restore_checkpoint_cfg");
    return true;
  };
  return run_entry_point(EntryPoint::evaluate, gin_line, prepare,
                         [&](GinSession& session, const gin::Arguments& arguments) {
                           EvaluationConfig config = evaluation_config_from(arguments);
                           config.weights = flags.quantize.type();
                           return run_evaluation(
                               std::move(config),
                               [&](const data::DatasetConfig& set) { return session.task(set); },
                               flags.samples);
                         });
}

}  // namespace quintet
