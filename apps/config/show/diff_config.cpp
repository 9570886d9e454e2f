#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/config/gin_session.h"
#include "apps/config/show/show_config.h"
#include "apps/huggingface/gin_text.h"
#include "runtime/base/check.h"
#include "runtime/gin/resolved.h"

namespace quintet {
namespace {

/// Values as JSON, macros expanded, under full names.
nlohmann::ordered_json side(const gin::Registry& registry, const std::string& path,
                            const gin::CommandLine& command_line) {
  gin::Config config(registry, {.search_paths = command_line.search_paths,
                                .roots = config_roots(),
                                .skip_unknown = true,
                                .read = read_config_file});
  config.parse_file(path);
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
  const std::vector<std::string>& files = command_line.files;
  QT_CHECK(files.size() == 2,
           "quintet config --diff: compares two gin files or model directories, found {}{}{}",
           files.size(), files.empty() ? "" : ": ", fmt::join(files, ", "));
  gin::Registry registry;
  register_everything(registry);
  const auto a = side(registry, files[0], command_line);
  const auto b = side(registry, files[1], command_line);
  auto differences = nlohmann::ordered_json::object();
  for (const char* part : {"macros", "bindings"}) add_differences(a[part], b[part], differences);
  if (options.format == "json") {
    fmt::print("{}\n", differences.dump(1));
    return;
  }
  fmt::print("--- {}\n+++ {}\n", files[0], files[1]);
  for (const auto& [name, values] : differences.items()) {
    if (values.contains("a")) fmt::print("-{} = {}\n", name, values["a"].dump());
    if (values.contains("b")) fmt::print("+{} = {}\n", name, values["b"].dump());
  }
}

}  // namespace quintet
