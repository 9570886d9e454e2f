// `quintet data show TASK`, `quintet data list`, `quintet data batches TASK`: what a model will be given.

#include <fmt/ranges.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "apps/cli/verbs.h"
#include "apps/config/feature_lengths.h"
#include "apps/config/gin_session.h"
#include "apps/flags/command_line.h"
#include "apps/flags/data_flags.h"
#include "apps/flags/launch_flags.h"
#include "apps/flags/refused_flags.h"
#include "apps/flags/result_format.h"
#include "apps/input/batch_frames.h"
#include "data/show/show.h"
#include "runtime/base/check.h"
#include "runtime/gin/command_line.h"

namespace quintet {
namespace {

/// A line for each: its splits in a column of their own on a terminal, behind a tab elsewhere.
void list_tasks(const data::TaskRegistry& tasks, const ResultFormat& format) {
  const auto all = data::splits_by_task(tasks);
  const bool is_terminal = isatty(STDOUT_FILENO) != 0;
  size_t width = 0;
  for (const auto& [name, splits] : all) width = std::max(width, name.size());
  bool any_is_away = false;
  for (const auto& [name, splits] : all) {
    any_is_away = any_is_away || !splits;
    nlohmann::ordered_json object = {{"task", name}, {"splits", nullptr}};
    if (splits) object["splits"] = *splits;
    format.print_object(object.dump());
    format.print_text(fmt::format("{:<{}}{}{}\n", name, is_terminal ? width : 0,
                                  is_terminal ? "  " : "\t",
                                  splits ? fmt::format("{}", fmt::join(*splits, " ")) : "-"));
  }
  if (any_is_away && !format.is_json())
    fmt::print(
        stderr,
        "-: the task's data or vocabulary is not here (--tfds_data_dir, VOCABULARY in gin)\n");
}

struct DataFlags {
  std::string what, name;
  std::vector<std::string> lengths;
  data::ShowOptions options;
  ResultFormat format{"text"};
  BatchFlags batches;
  bool padded = false;
};

void add_flags(CLI::App& app, DataFlags& flags) {
  app.add_option("what", flags.what, "show, list, or batches: for libquintet.so, which starts this")
      ->required()
      ->check(CLI::IsMember({"show", "list", "batches"}));
  app.add_option("task", flags.name, "task or mixture (for show and batches)");
  app.add_option("--split", flags.options.split, "split of the data set")->capture_default_str();
  app.add_option("--num", flags.options.num, "number of examples and rows to show")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
  app.add_option(
         "--task_feature_lengths", flags.lengths,
         "name=length,..; default: %TASK_FEATURE_LENGTHS of the gin files, else 512 and 114")
      ->delimiter(',');
  app.add_flag("--shuffle", flags.options.shuffle, "show examples in the order of training");
  app.add_option("--seed", flags.options.seed, "seed of that order")->capture_default_str();
  app.add_flag("--no_pack", flags.padded, "pad rows instead of packing");
  app.add_flag("--best_fit", flags.options.best_fit,
               "pack rows by best fit (use_custom_packing_ops) instead of greedily");
  app.add_option("--most_ids", flags.options.most_ids, "print at most so many ids of a feature")
      ->capture_default_str();
  flags.format.add_to(app);
  app.add_flag("--use_cached", flags.options.use_cached,
               "of the task's offline cache in --seqio_additional_cache_dirs");
  flags.batches.add_to(app);
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
                  "quintet data show my_task --gin_file=my_task.gin "
                  "--task_feature_lengths=inputs=64,targets=32");
  CLI::App& app = cli.app();
  add_flags(app, flags);
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
  if (flags.what == "list") return list_tasks(session.tasks(), flags.format), 0;
  QT_CHECK(!flags.name.empty(), "quintet data {}: which task? 'quintet data list' lists them",
           flags.what);
  options.lengths =
      flags.lengths.empty() ? configured_lengths(session.config()) : parse_lengths(flags.lengths);
  if (const gin::Value* dirs = session.config().query("t5x.utils.DatasetConfig.cache_dirs"))
    options.cache_dirs = gin::as<std::vector<std::string>>(*dirs, {"DatasetConfig.cache_dirs"});
  if (flags.what == "batches")
    flags.batches.send(flags.name, *session.task(flags.name), options, STDOUT_FILENO);
  else
    data::show(*session.task(flags.name), options, stdout);
  return 0;
}

}  // namespace quintet
