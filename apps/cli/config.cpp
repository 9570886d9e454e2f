// `quintet config`: what gin files and flags come to: the resolved configuration as gin text or as
// JSON.

#include "apps/cli/verbs.h"
#include "apps/config/show/show_config.h"
#include "apps/flags/command_line.h"
#include "apps/flags/data_flags.h"
#include "apps/flags/launch_flags.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

void add_flags(CommandLine& cli, std::vector<std::string>& files, ShowConfigOptions& options) {
  CLI::App& app = cli.app();
  app.add_option("FILE,--model_dir,--model", files,
                 "gin files, as with --gin_file, or model directories");
  describe_gin_flags(app, "a gin file");
  options.format.add_to(app);
  auto* parse_only = app.add_flag("--parse_only", options.parse_only,
                                  "do not look up names; list missing includes");
  auto* keep_macros = app.add_flag("--keep_macros", options.keep_macros,
                                   "with --format=json: macros as references, not as their values");
  auto* explain =
      app.add_flag("--explain", options.explain,
                   "show for every value the file and line or flag that set it and what "
                   "it replaced; at the end the unused bindings");
  auto* diff =
      app.add_flag("--diff", options.diff, "show the values that differ between two FILEs");
  for (auto* other : {parse_only, keep_macros}) {
    explain->excludes(other);
    diff->excludes(other);
  }
  diff->excludes(explain);
  describe_data_flags(app);
}

}  // namespace

int run_config(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  gin::CommandLine gin_line = extract_data_command_line(left);
  std::vector<std::string> files;
  ShowConfigOptions options;
  CommandLine cli("config", "Prints the configuration that gin files and flags result in.",
                  "quintet config t5x/examples/t5/t5_1_1/base.gin --gin.DROPOUT_RATE=0.0\n"
                  "quintet config --format=json --gin_file=run.gin --gin.BATCH_SIZE=64\n"
                  "quintet config --format=json --parse_only --gin_file=run.gin\n"
                  "quintet config --explain quintet/quickstart.gin --gin.TRAIN_STEPS=500\n"
                  "quintet config --diff quintet/quickstart.gin quintet/switch_quickstart.gin");
  add_flags(cli, files, options);
  LaunchFlags launch;  // so that the command line of a run shows its configuration
  launch.add_dry_run(cli.app());
  launch.add_run_mode(cli.app(), {"train", "eval", "infer", "export", "precompile"});
  launch.add_to_one_process(cli.app());
  if (!cli.parse(left) || !launch.check()) return 0;
  for (const std::string& file : files) gin_line.files.push_back(gin_file_of(file));
  QT_CHECK(!gin_line.files.empty() || !gin_line.bindings.empty(),
           "quintet config: no configuration; name a gin file");
  show_config(gin_line, options);
  return 0;
}

}  // namespace quintet
