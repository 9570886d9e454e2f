// `quintet config`: what gin files and flags come to: the resolved configuration as gin text or as
// JSON.

#include <cstdio>

#include "apps/cli.h"
#include "apps/gin_flags.h"
#include "apps/session.h"
#include "apps/verbs.h"
#include "runtime/base/check.h"
#include "runtime/gin/resolved.h"

namespace quintet {
namespace {

struct ConfigFlags {
  std::string format = "text";
  std::vector<std::string> files;
  bool parse_only = false, skip_unknown = false, keep_macros = false;
};

void add_flags(CommandLine& cli, ConfigFlags& flags) {
  CLI::App& app = cli.app();
  app.add_option("FILE", flags.files, "gin files, as with --gin_file");
  app.add_option("--gin_file", "a gin file; may be repeated, later ones win");
  app.add_option("--gin_bindings",
                 "a binding, as in --gin_bindings='BATCH_SIZE = 8'; may be repeated");
  app.add_option("--gin_search_paths", "folders of gin files, with commas between");
  app.add_option("--format", flags.format, "text (gin) or json")
      ->check(CLI::IsMember({"text", "json"}));
  app.add_flag("--parse_only", flags.parse_only,
               "names as written, nothing looked up; includes that are missing are listed");
  app.add_flag("--skip_unknown", flags.skip_unknown,
               "names that this version does not know are told on stderr, not errors");
  app.add_flag("--keep_macros", flags.keep_macros,
               "json: macros as references, not as their values");
}

/// Parsed only, as gin text: what --format=json has, without the includes.
void print_text(const gin::Resolved& resolved) {
  for (const std::string& line : resolved.imports) fmt::print("{}\n", line);
  for (const gin::NamedValues* values : {&resolved.macros, &resolved.bindings})
    for (const auto& [name, value] : values->items()) fmt::print("{} = {}\n", name, value.repr());
}

int parse_only(const gin::CommandLine& gin_line, const ConfigFlags& flags) {
  const gin::Finder finder(gin_line.search_paths, config_roots());
  const gin::Resolved resolved = gin::resolve_files(gin_line.files, gin_line.bindings, finder);
  if (flags.format == "json")
    fmt::print("{}", gin::to_json(resolved, !flags.keep_macros));
  else
    print_text(resolved);
  for (const std::string& file : resolved.missing_includes)
    fmt::print(stderr, "warning: include '{}' was not found in {}\n", file, finder.searched());
  return 0;
}

}  // namespace

int run_config(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  gin::CommandLine gin_line = gin::extract_command_line(left);
  ConfigFlags flags;
  CommandLine cli("config", "Prints the configuration that gin files and flags come to.",
                  "quintet config t5x/examples/t5/t5_1_1/base.gin --gin.DROPOUT_RATE=0.0\n"
                  "quintet config --format=json --gin_file=run.gin --gin.BATCH_SIZE=64\n"
                  "quintet config --format=json --parse_only --gin_file=run.gin");
  add_flags(cli, flags);
  if (!cli.parse(left)) return 0;
  gin_line.files.insert(gin_line.files.end(), flags.files.begin(), flags.files.end());
  QT_CHECK(!gin_line.files.empty() || !gin_line.bindings.empty(),
           "quintet config: no configuration; name a gin file");
  if (flags.parse_only) return parse_only(gin_line, flags);

  gin::Registry registry;
  register_everything(registry);
  gin::Config config(registry, {.roots = config_roots(), .skip_unknown = flags.skip_unknown});
  const auto tell_unknown = [&] {
    for (const std::string& unknown : config.unknown())
      fmt::print(stderr, "unknown: {}\n", unknown);
  };
  try {
    config.load(gin_line);
  } catch (const Error&) {
    tell_unknown();
    throw;
  }
  tell_unknown();
  if (!flags.skip_unknown)
    gin::check_flags_used(config, read_by_program({"MODEL", "TASK_FEATURE_LENGTHS"}));
  if (flags.format == "json")
    fmt::print("{}", gin::to_json(gin::resolve(config), !flags.keep_macros));
  else
    fmt::print("{}", config.config_str());
  return 0;
}

}  // namespace quintet
