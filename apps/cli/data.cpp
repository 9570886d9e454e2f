// `quintet data show TASK`, `quintet data lengths TASK`, `quintet data list`, `quintet data batches TASK`: what a model will be given;
// `quintet data prepare NAME`: what TFDS prepares.

#include <unistd.h>

#include "apps/cli/verbs.h"
#include "apps/config/feature_lengths.h"
#include "apps/config/gin_session.h"
#include "apps/flags/command_line.h"
#include "apps/flags/data_flags.h"
#include "apps/flags/launch_flags.h"
#include "apps/flags/refused_flags.h"
#include "apps/input/data_flags.h"
#include "runtime/base/check.h"
#include "runtime/gin/command_line.h"

namespace quintet {
namespace {

/// What --tfds_data_dir bound; empty: nothing.
std::string data_dir_of(const gin::Config& config) {
  const gin::Value* bound = config.query("seqio.dataset_providers.TfdsDataSource.tfds_data_dir");
  return bound == nullptr ? "" : gin::as<std::string>(*bound, {"--tfds_data_dir"});
}

}  // namespace

int run_data(std::span<char* const> arguments) {
  std::vector<std::string> args(arguments.begin(), arguments.end());
  const gin::CommandLine gin_line = extract_data_command_line(args);
  std::vector<char*> rest;
  for (std::string& arg : args) rest.push_back(arg.data());

  DataFlags flags;
  CommandLine cli("data", "Shows a task's examples: raw, preprocessed and packed.",
                  "quintet data list\n"
                  "quintet data show number_words --num=2\n"
                  "quintet data prepare glue/cola --from=CoLA --tfds_data_dir=/tmp/tfds\n"
                  "quintet data show my_task --gin_file=my_task.gin "
                  "--task_feature_lengths=inputs=64,targets=32");
  CLI::App& app = cli.app();
  flags.add_to(app);
  describe_gin_flags(app, "more tasks (seqio.TaskRegistry.tasks)");
  describe_data_flags(app);
  LaunchFlags launch;
  launch.add_to_one_process(app);
  if (!cli.parse(rest) || !launch.check()) return 0;
  data::ShowOptions& options = flags.options;
  options.pack = !flags.padded;
  options.json = flags.format.is_json();
  refuse_flags_of_others(app, flags.what);
  if (options.json) refuse_flags(app, {"--most_ids"}, "--format=json prints all ids");

  GinSession session(gin_line, {}, {.macros = {"TASK_FEATURE_LENGTHS"}, .needs_all = false});
  if (flags.what == "prepare") return prepare_dataset(flags, data_dir_of(session.config())), 0;
  if (flags.what == "list") {
    (flags.provenance ? list_provenance : list_tasks)(session.tasks(), flags.format);
    return 0;
  }
  QT_CHECK(!flags.name.empty(), "quintet data {}: which task? 'quintet data list' lists them",
           flags.what);
  options.lengths =
      flags.lengths.empty() ? configured_lengths(session.config()) : parse_lengths(flags.lengths);
  if (const gin::Value* dirs = session.config().query("t5x.utils.DatasetConfig.cache_dirs"))
    options.cache_dirs = gin::as<std::vector<std::string>>(*dirs, {"DatasetConfig.cache_dirs"});
  if (flags.what == "batches")
    flags.batches.send(flags.name, *session.task(flags.name), options, STDOUT_FILENO);
  else if (flags.what == "lengths")
    data::print_length_statistics(*session.task(flags.name), options, flags.length_statistics,
                                  stdout);
  else
    data::show(*session.task(flags.name), options, stdout);
  return 0;
}

}  // namespace quintet
