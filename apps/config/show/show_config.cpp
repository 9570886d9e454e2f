#include "apps/config/show/show_config.h"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/config/gin_flags.h"
#include "apps/config/gin_session.h"
#include "apps/config/ineffective.h"
#include "apps/huggingface/gin_text.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/process/messages.h"
#include "runtime/gin/resolved.h"

namespace quintet {
namespace {

/// Parsed only, as gin text: what --format=json has, without the includes.
void print_text(const gin::Resolved& resolved) {
  for (const std::string& line : resolved.imports) fmt::print("{}\n", line);
  for (const gin::NamedValues* values : {&resolved.macros, &resolved.bindings})
    for (const auto& [name, value] : values->items()) fmt::print("{} = {}\n", name, value.repr());
}

void show_parsed(const gin::CommandLine& command_line, const ShowConfigOptions& options) {
  const gin::Finder finder(command_line.search_paths, config_roots());
  const gin::Resolved resolved =
      gin::resolve_files(command_line.files, command_line.bindings, finder);
  if (options.format.is_json())
    fmt::print("{}", gin::to_json(resolved, !options.keep_macros));
  else
    print_text(resolved);
  for (const std::string& file : resolved.missing_includes)
    print_warning("include '{}' was not found in {}", file, finder.searched());
}

void print_json(const gin::Config& config, const ShowConfigOptions& options) {
  std::string json = gin::to_json(gin::resolve(config), !options.keep_macros);
  nlohmann::ordered_json without_effect;
  for (const gin::IneffectiveBinding& b :
       gin::ineffective_bindings(config, ineffective_parameters()))
    without_effect[b.name] = b.reason;
  if (!without_effect.empty())
    json.replace(json.rfind('}'), 1,
                 fmt::format(", \"without_effect\": {}}}", without_effect.dump()));
  fmt::print("{}", json);
}

/// Comments that name the bindings without effect.
std::string marks(const gin::Config& config) {
  std::string text;
  for (const gin::IneffectiveBinding& b :
       gin::ineffective_bindings(config, ineffective_parameters()))
    text += fmt::format("# {} = {}: {}\n", b.name, b.value.repr(), b.reason);
  return text.empty() ? "" : "\n# Without effect:\n" + text;
}

}  // namespace

std::string gin_file_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::path folder = path;
  if (!std::filesystem::is_directory(folder, error)) return path;
  const bool is_theirs = !is_there(folder / "config.gin") && is_there(folder / "config.json");
  return (folder / (is_theirs ? "config.json" : "config.gin")).string();
}

void show_config(const gin::CommandLine& command_line, const ShowConfigOptions& options) {
  if (options.parse_only) return show_parsed(command_line, options);
  if (options.explain) return explain_config(command_line, options);
  if (options.diff) return diff_config(command_line, options);

  gin::Registry registry;
  register_everything(registry);
  gin::Config config(registry, {.roots = config_roots(),
                                .skip_unknown = command_line.skip_unknown,
                                .read = read_config_file});
  try {
    config.load(command_line);
  } catch (const Error&) {
    print_unknown(config);
    throw;
  }
  print_unknown(config);
  if (!command_line.skip_unknown)
    gin::check_flags_used(config, read_by_program({"MODEL", "TASK_FEATURE_LENGTHS"}));
  check_effects(config);
  if (options.format.is_json())
    print_json(config, options);
  else
    fmt::print("{}{}", config.config_str(), marks(config));
}

}  // namespace quintet
