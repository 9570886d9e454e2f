// `quintet data show TASK`, `quintet data list`, `quintet data batches TASK`: what a model will be given.

#include <unistd.h>

#include "apps/cli/verbs.h"
#include "apps/config/feature_lengths.h"
#include "apps/config/gin_session.h"
#include "apps/flags/command_line.h"
#include "apps/flags/data_flags.h"
#include "apps/flags/launch_flags.h"
#include "apps/input/batch_frames.h"
#include "data/batches/show.h"
#include "runtime/base/check.h"
#include "runtime/gin/command_line.h"

namespace quintet {
int run_data(std::span<char* const> arguments) {
  std::vector<std::string> args(arguments.begin(), arguments.end());
  const gin::CommandLine gin_line = extract_data_command_line(args);
  std::vector<char*> rest;
  for (std::string& arg : args) rest.push_back(arg.data());

  std::string what, name;
  std::vector<std::string> lengths;
  data::ShowOptions options;
  BatchFlags batches;
  bool padded = false;
  CommandLine cli("data", "Shows a task's examples: raw, preprocessed and packed.",
                  "quintet data list\n"
                  "quintet data show number_words --num=2\n"
                  "quintet data show my_task --gin_file=my_task.gin "
                  "--task_feature_lengths=inputs=64,targets=32");
  CLI::App& app = cli.app();
  app.add_option("what", what, "show, list, or batches: for libquintet.so, which starts this")
      ->required()
      ->check(CLI::IsMember({"show", "list", "batches"}));
  app.add_option("task", name, "task or mixture (for show and batches)");
  app.add_option("--split", options.split, "split of the data set")->capture_default_str();
  app.add_option("--num", options.num, "number of examples and rows to show")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
  app.add_option(
         "--task_feature_lengths", lengths,
         "name=length,..; default: %TASK_FEATURE_LENGTHS of the gin files, else 512 and 114")
      ->delimiter(',');
  app.add_flag("--shuffle", options.shuffle, "show examples in the order of training");
  app.add_option("--seed", options.seed, "seed of that order")->capture_default_str();
  app.add_flag("--no_pack", padded, "pad rows instead of packing");
  app.add_flag("--best_fit", options.best_fit,
               "pack rows by best fit (use_custom_packing_ops) instead of greedily");
  app.add_option("--most_ids", options.most_ids, "print at most so many ids of a feature")
      ->capture_default_str();
  batches.add_to(app);
  describe_gin_flags(app, "more tasks (seqio.TaskRegistry.tasks)");
  describe_data_flags(app);
  LaunchFlags launch;
  launch.add_to_one_process(app);
  if (!cli.parse(rest) || !launch.check()) return 0;
  options.pack = !padded;
  refuse_flags_of_others(app, what);

  GinSession session(gin_line, {}, {.macros = {"TASK_FEATURE_LENGTHS"}});
  if (what == "list") return data::list_tasks(session.tasks()), 0;
  QT_CHECK(!name.empty(), "quintet data {}: which task? 'quintet data list' lists them", what);
  options.lengths = lengths.empty() ? configured_lengths(session.config()) : parse_lengths(lengths);
  if (const gin::Value* dirs = session.config().query("t5x.utils.DatasetConfig.cache_dirs"))
    options.cache_dirs = gin::as<std::vector<std::string>>(*dirs, {"DatasetConfig.cache_dirs"});
  if (what == "batches")
    batches.send(name, *session.task(name), options, STDOUT_FILENO);
  else
    data::show(*session.task(name), options, stdout);
  return 0;
}

}  // namespace quintet
