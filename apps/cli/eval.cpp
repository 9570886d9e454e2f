// `quintet eval`: metrics of a task over the checkpoints of a run, or as T5X's eval.py from gin files.

#include "apps/cli/verbs.h"
#include "apps/config/entry_point.h"
#include "apps/evaluate/evaluated_checkpoints.h"
#include "apps/evaluate/evaluation.h"
#include "apps/evaluate/evaluation_flags.h"
#include "apps/flags/command_line.h"
#include "apps/flags/data_flags.h"
#include "apps/input/run_vocabularies.h"

namespace quintet {

int run_eval(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  gin::CommandLine gin_line = extract_data_command_line(left);
  EvaluationFlags flags;
  CommandLine cli("eval", "Computes a task's metrics for checkpoints.",
                  "quintet eval --model_dir=/tmp/numbers --samples=10\n"
                  "quintet eval --model_dir=/tmp/numbers --checkpoint=all --task=number_to_words\n"
                  "mpirun -n 4 quintet eval --gin_file=my_eval.gin");
  flags.add_to(cli.app());
  describe_gin_flags(cli.app(), "instead of --model_dir: a gin file with eval_script.evaluate");
  describe_data_flags(cli.app());
  if (!cli.parse(left) || !flags.launch.check()) return 0;
  QT_CHECK(
      flags.set.model_dir.empty() != gin_line.files.empty(),
      "quintet eval: name a run with --model_dir=DIR, or a configuration with --gin_file=FILE{}",
      gin_line.files.empty() ? "" : ", not both");
  Ranks ranks(flags.ranks);
  ranks.agree_on_program(fmt::format("{}", fmt::join(args, "\n")));
  flags.compute.start();
  ranks.open(Device::current());
  if (!flags.set.model_dir.empty()) {
    if (flags.follow) EvaluatedCheckpoints::wait_for_configuration(flags.set.model_dir);
    const TrainedModel trained = open_trained_model(flags.set.model_dir, gin_line, Load::nothing);
    if (flags.launch.dry_run) {
      print_configuration(*trained.session, ranks.leads());
      return 0;
    }
    return run_evaluation(
        evaluation_config_of(trained, flags), ranks,
        [&](const data::DatasetConfig& set) { return trained.session->task(set); }, flags.samples,
        flags.format);
  }
  flags.partitions.bind(gin_line);
  const auto prepare = [&](GinSession& session) {
    if (flags.launch.dry_run) return print_configuration(session, ranks.leads());
    use_copies_of(session.config(), "t5x.eval.evaluate.restore_checkpoint_cfg");
    return true;
  };
  return run_entry_point(EntryPoint::evaluate, gin_line, prepare,
                         [&](GinSession& session, const gin::Arguments& arguments) {
                           EvaluationConfig config = evaluation_config_from(arguments);
                           config.weights = flags.quantize.type();
                           config.cache_type = flags.cache.type();
                           config.follow = flags.follow;
                           config.restore.adapter = flags.set.adapter;
                           return run_evaluation(
                               std::move(config), ranks,
                               [&](const data::DatasetConfig& set) { return session.task(set); },
                               flags.samples, flags.format);
                         });
}

}  // namespace quintet
