// `quintet infer`: predictions or scores of a data set as JSON lines, as T5X's infer.py from gin
// files, or of a run's model for a task or a file.

#include "apps/cli/verbs.h"
#include "apps/config/entry_point.h"
#include "apps/flags/command_line.h"
#include "apps/flags/data_flags.h"
#include "apps/infer/inference.h"
#include "apps/infer/inference_flags.h"
#include "apps/input/run_vocabularies.h"

namespace quintet {

int run_infer(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  gin::CommandLine gin_line = extract_data_command_line(left);
  InferenceFlags flags;
  CommandLine cli(
      "infer",
      "Writes predictions or scores of a data set as JSON lines into --output_dir; resumes.",
      "quintet infer --model_dir=/tmp/numbers --input=questions.jsonl --output_dir=/tmp/answers\n"
      "quintet infer --model_dir=/tmp/numbers --task=number_words --mode=score "
      "--output_dir=/tmp/scores\n"
      "mpirun -n 4 quintet infer --gin_file=my_infer.gin");
  flags.add_to(cli.app());
  describe_gin_flags(cli.app(), "instead of --model_dir: a gin file with infer_script.infer");
  describe_data_flags(cli.app());
  if (!cli.parse(left) || !flags.launch.check()) return 0;
  QT_CHECK(
      flags.set.model_dir.empty() != gin_line.files.empty(),
      "quintet infer: name a run with --model_dir=DIR, or a configuration with --gin_file=FILE{}",
      gin_line.files.empty() ? "" : ", not both");
  QT_CHECK(flags.set.model_dir.empty() || !flags.output_dir.empty(),
           "quintet infer: name a folder for the results with --output_dir=DIR");
  Ranks ranks(flags.ranks);
  ranks.agree_on_program(fmt::format("{}", fmt::join(args, "\n")));
  flags.compute.start();
  ranks.open(Device::current());
  if (!flags.set.model_dir.empty()) {
    const TrainedModel trained = open_trained_model(flags.set.model_dir, gin_line, Load::nothing);
    if (flags.launch.dry_run) {
      print_configuration(*trained.session, ranks.leads());
      return 0;
    }
    return run_inference(
        inference_config_of(trained, flags), ranks,
        [&](const data::DatasetConfig& set) { return trained.session->task(set); }, flags.format);
  }
  // T5X's own flag over the configuration.
  if (flags.shard_id)
    gin_line.bindings.push_back(fmt::format("infer_script.infer.shard_id = {}", *flags.shard_id));
  flags.partitions.bind(gin_line);
  const auto prepare = [&](GinSession& session) {
    if (flags.launch.dry_run) return print_configuration(session, ranks.leads());
    use_copies_of(session.config(), "t5x.infer.infer.restore_checkpoint_cfg");
    return true;
  };
  return run_entry_point(
      EntryPoint::infer, gin_line, prepare,
      [&](GinSession& session, const gin::Arguments& arguments) {
        InferenceConfig config =
            with_decode(inference_config_from(arguments), flags.decode, flags.cache);
        config.weights = flags.quantize.type();
        config.restore.adapter = flags.set.adapter;
        return run_inference(
            config, ranks, [&](const data::DatasetConfig& set) { return session.task(set); },
            flags.format);
      });
}

}  // namespace quintet
