// `quintet export`: T5X's export.py: a model as one file that serve, generate and the others take; or as ONNX.

#include "apps/cli/verbs.h"
#include "apps/config/entry_point.h"
#include "apps/export/export_source.h"
#include "apps/flags/command_line.h"
#include "apps/flags/data_flags.h"
#include "apps/flags/launch_flags.h"
#include "apps/input/run_vocabularies.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

/// As T5X's gin files say it.
int export_configured(const ExportFlags& flags, const gin::CommandLine& gin_line, bool dry_run) {
  const auto prepare = [&](GinSession& session) {
    if (dry_run) return print_configuration(session);
    use_copies_of(session.config(), "t5x.export_lib.save.restore_checkpoint_cfg");
    return true;
  };
  return run_entry_point(EntryPoint::save, gin_line, prepare,
                         [&](GinSession& session, const gin::Arguments& arguments) {
                           export_model(flags, source_of(flags, session, arguments));
                           return 0;
                         });
}

}  // namespace

int run_export(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  const gin::CommandLine gin_line = gin::extract_command_line(left);
  ExportFlags flags;
  LaunchFlags launch;
  CommandLine cli("export",
                  "Writes a model as one file: weights, configuration and vocabularies; every verb "
                  "that takes a "
                  "model directory takes it. T5X's export.py, which writes a SavedModel, by the "
                  "same gin files.",
                  "quintet export /tmp/numbers --output=/tmp/numbers.safetensors\n"
                  "quintet export /tmp/numbers --output=/tmp/small.safetensors --quantize=int8\n"
                  "quintet serve --model /tmp/small.safetensors\n"
                  "quintet export /tmp/numbers --output=/tmp/numbers.onnx --format=onnx\n"
                  "quintet export --gin_file=my_export.gin");
  flags.add_to(cli.app());
  describe_gin_flags(cli.app(), "instead of MODEL: a gin file with export_lib.save");
  launch.add_dry_run(cli.app());
  launch.add_run_mode(cli.app(), {"export"});
  launch.add_to_one_process(cli.app());
  if (!cli.parse(left) || !launch.check()) return 0;
  flags.check();
  QT_CHECK(!flags.model_dir.empty() || !gin_line.files.empty(),
           "quintet export: name a model with --model_dir=DIR, or a configuration with "
           "--gin_file=FILE");
  if (flags.model_dir.empty()) return export_configured(flags, gin_line, launch.dry_run);
  ExportSource source = source_of(flags, gin_line);
  if (launch.dry_run)
    print_configuration(*source.session);
  else
    export_model(flags, std::move(source));
  return 0;
}

}  // namespace quintet
