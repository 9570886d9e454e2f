// `quintet precompile`: T5X's precompile.py: the training step of its configuration, simulated as `quintet plan` does it.

#include "apps/plan/precompile.h"

#include "apps/cli/verbs.h"
#include "apps/config/entry_point.h"
#include "apps/flags/command_line.h"
#include "apps/flags/data_flags.h"
#include "apps/flags/launch_flags.h"
#include "runtime/base/check.h"

namespace quintet {

int run_precompile(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  gin::CommandLine gin_line = gin::extract_command_line(left);
  PrecompileFlags flags;
  LaunchFlags launch;
  std::string model_dir;
  CommandLine cli(
      "precompile",
      "T5X's precompile.py: simulates the training step that train_script.precompile describes, "
      "as quintet plan does, and writes it op by op to MODEL_DIR/step.txt.",
      "quintet precompile --gin_file=my_precompile.gin --model_dir=/tmp/step\n"
      "quintet precompile --gin_file=my_precompile.gin --model_dir=/tmp/step --mesh=data=4,model=2 "
      "--explain");
  CLI::App& app = cli.app();
  describe_gin_flags(app, "a gin file with train_script.precompile");
  app.add_option("--model_dir", model_dir, "where step.txt is written; short for --gin.MODEL_DIR");
  app.add_option("--mesh", flags.on_mesh.mesh,
                 "axes and sizes of the mesh, outermost first; default: the smallest that the "
                 "partitioner asks for");
  flags.on_cluster.add_to(app);
  app.add_flag("--explain", flags.on_mesh.explain,
               "print layouts and collectives of the step, op by op");
  flags.microbatches.add_microbatches_to(app);
  flags.microbatches.add_to(app);
  launch.add_dry_run(app);
  launch.add_run_mode(app, {"precompile"});
  launch.add_to_one_process(app);
  if (!cli.parse(left) || !launch.check()) return 0;
  QT_CHECK(!gin_line.files.empty() || !gin_line.bindings.empty(),
           "quintet precompile: no configuration; name a gin file with --gin_file=FILE");
  if (!model_dir.empty())
    gin_line.bindings.push_back("MODEL_DIR = " + gin::Value(model_dir).repr());
  const auto prepare = [&](GinSession& session) {
    return !launch.dry_run || print_configuration(session);
  };
  return run_entry_point(EntryPoint::precompile, gin_line, prepare,
                         [&](GinSession& session, const gin::Arguments& arguments) {
                           precompile(flags, session, arguments);
                           return 0;
                         });
}

}  // namespace quintet
