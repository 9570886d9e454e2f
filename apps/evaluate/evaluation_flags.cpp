#include "apps/evaluate/evaluation_flags.h"

#include "apps/flags/command_line.h"

namespace quintet {

void EvaluationFlags::add_to(CLI::App& app) {
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 40);
  set.add_to(app);
  app.add_option("--num_examples", num_examples, "at most so many examples per task; default: all")
      ->check(positive);
  app.add_option("--output_dir", output_dir,
                 "folder for seqio's files of metrics and predictions; default: none written")
      ->transform(mapped_path);
  app.add_flag("--follow", follow,
               "evaluate each checkpoint of a run that trains as it appears, and end with the run");
  app.add_option("--samples", samples, "print so many predictions on stderr");
  partitions.add_to(app);
  quantize.add_to(app);
  cache.add_to(app);
  compute.add_to(app);
  format.add_to(app);
  launch.add_dry_run(app);
  launch.add_run_mode(app, {"eval"});
  launch.add_to(app);
  ranks.add_to(app);
}

EvaluationConfig evaluation_config_of(const TrainedModel& trained, const EvaluationFlags& flags) {
  EvaluationConfig config;
  config.model = trained.model;
  config.dataset = flags.set.dataset_of(trained, "quintet eval");
  config.restore = flags.set.restore_of(trained);
  config.follow = flags.follow;
  config.verify_vocabs = flags.set.verifies_vocabs(trained);
  config.output_dir = flags.output_dir;
  config.config_text = trained.session->config().config_str();
  config.weights = flags.quantize.type();
  config.cache_type = flags.cache.type();
  config.partitioner.num_partitions = flags.partitions.count;
  if (flags.num_examples > 0) config.evaluator.options.num_examples = flags.num_examples;
  return config;
}

}  // namespace quintet
