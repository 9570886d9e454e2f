// `quintet train`: T5X's train.py; goes on from the newest whole checkpoint of its model directory.

#include "apps/cli/verbs.h"
#include "apps/flags/command_line.h"
#include "apps/flags/data_flags.h"
#include "apps/train/training.h"
#include "data/preprocessors/strings.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

void add_flags(CommandLine& cli, TrainingFlags& flags, std::vector<std::string>& files) {
  CLI::App& app = cli.app();
  app.add_option("FILE", files, "gin files, read before those of --gin_file");
  describe_gin_flags(app, "a gin file");
  app.add_option("--model_dir", flags.model_dir,
                 "where the run writes, and resumes from; short for --gin.MODEL_DIR");
  flags.compute.add_to(app);
  flags.ranks.add_to(app);
  flags.data.add_to(app);
  app.add_flag("--strict_data", flags.strict_data,
               "exit if data files have changed since the checkpoint, instead of a warning");
  flags.launch.add_dry_run(app);
  app.add_flag("--profile", flags.profile, "print time and bytes of each op at the end, on stderr");
  app.add_flag("--no_step_graph", flags.no_step_graph,
               "on a GPU: launch every kernel of every step, instead of a recorded CUDA graph");
  app.add_flag("--optimizer_offload", flags.optimizer_offload,
               "on a GPU: optimizer state, update and (one rank) masters on the host; slow");
  flags.microbatches.add_to(app);
  flags.launch.add_run_mode(app, {"train", "eval", "infer", "export", "precompile"});
  describe_data_flags(app);
  flags.launch.add_to(app);
}

/// T5X's main.py is one command for all: the others have flags of their own here.
std::optional<int> run_other_mode(std::span<char* const> args) {
  constexpr std::string_view kFlag = "--run_mode";
  std::vector<char*> rest(args.begin(), args.end());
  for (size_t i = 0; i < rest.size(); ++i) {
    const std::string argument = rest[i];
    if (argument.substr(0, argument.find('=')) != kFlag) continue;
    const bool apart = argument == kFlag;
    const std::string mode = data::lower_ascii(!apart ? argument.substr(kFlag.size() + 1)
                                               : i + 1 < rest.size() ? rest[i + 1]
                                                                     : "");
    const auto flag = rest.begin() + static_cast<std::ptrdiff_t>(i);
    rest.erase(flag, flag + (apart ? 2 : 1));
    using Run = int (*)(std::span<char* const>);
    for (const auto& [name, run] : {std::pair<std::string, Run>("eval", run_eval),
                                    {"infer", run_infer},
                                    {"export", run_export},
                                    {"precompile", run_precompile}})
      if (mode == name) return run(rest);
  }
  return std::nullopt;
}

}  // namespace

int run_train(std::span<char* const> args) {
  if (const auto code = run_other_mode(args)) return *code;
  std::vector<std::string> left(args.begin(), args.end());
  gin::CommandLine gin_line = extract_data_command_line(left);
  TrainingFlags flags;
  CommandLine cli(
      "train",
      "Trains as gin files say; resumes from the newest checkpoint of the model directory.",
      "quintet train quintet/quickstart.gin --model_dir=/tmp/numbers\n"
      "quintet train --gin_file=my_t5.gin --gin_file=my_run.gin --gin.BATCH_SIZE=64");
  std::vector<std::string> files;
  add_flags(cli, flags, files);
  if (!cli.parse(left) || !flags.launch.check()) return 0;
  gin_line.files.insert(gin_line.files.begin(), files.begin(), files.end());
  QT_CHECK(!gin_line.files.empty() || !gin_line.bindings.empty(),
           "quintet train: no configuration; name a gin file, as FILE or with --gin_file=FILE");
  return run_training(flags, gin_line, fmt::format("{}", fmt::join(args, "\n")));
}

}  // namespace quintet
