#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/config/gin_session.h"
#include "apps/config/show/show_config.h"
#include "runtime/base/check.h"
#include "runtime/gin/resolved.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

/// Values as JSON, macros expanded, under full names; a directory is a run's.
nlohmann::ordered_json side(const gin::Registry& registry, const std::string& path,
                            const gin::CommandLine& command_line) {
  std::error_code error;
  const bool is_run = fs::is_directory(path, error);
  gin::Config config(
      registry,
      {.search_paths = command_line.search_paths, .roots = config_roots(), .skip_unknown = true});
  config.parse_file(is_run ? (fs::path(path) / "config.gin").string() : path);
  config.parse_bindings(command_line.bindings);
  for (const std::string& unknown : config.unknown()) fmt::print(stderr, "unknown: {}\n", unknown);
  return nlohmann::ordered_json::parse(gin::to_json(gin::resolve(config)));
}

void add_differences(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b,
                     nlohmann::ordered_json& out) {
  for (const auto& [name, value] : a.items())
    if (!b.contains(name) || b[name] != value) out[name]["a"] = value;
  for (const auto& [name, value] : b.items())
    if (!a.contains(name) || a[name] != value) out[name]["b"] = value;
}

}  // namespace

void diff_config(const gin::CommandLine& command_line, const ShowConfigOptions& options) {
  QT_CHECK(command_line.files.empty(), "quintet config --diff: compares two files; leave {} away",
           command_line.files.empty() ? "" : command_line.files[0]);
  gin::Registry registry;
  register_everything(registry);
  const auto a = side(registry, options.diff[0], command_line);
  const auto b = side(registry, options.diff[1], command_line);
  auto differences = nlohmann::ordered_json::object();
  for (const char* part : {"macros", "bindings"}) add_differences(a[part], b[part], differences);
  if (options.format == "json") {
    fmt::print("{}\n", differences.dump(1));
    return;
  }
  fmt::print("--- {}\n+++ {}\n", options.diff[0], options.diff[1]);
  for (const auto& [name, values] : differences.items()) {
    if (values.contains("a")) fmt::print("-{} = {}\n", name, values["a"].dump());
    if (values.contains("b")) fmt::print("+{} = {}\n", name, values["b"].dump());
  }
}

}  // namespace quintet
