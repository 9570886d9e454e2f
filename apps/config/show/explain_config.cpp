#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/config/gin_flags.h"
#include "apps/config/gin_session.h"
#include "apps/config/ineffective.h"
#include "apps/config/show/parsed_config.h"
#include "apps/config/show/show_config.h"
#include "runtime/gin/explain.h"

namespace quintet {
namespace {

using Reasons = std::map<std::string, std::string>;

void print_text(const gin::Explained& e, const Reasons& without_effect) {
  fmt::print("{} = {}", e.name, e.written.repr());
  if (!(e.value == e.written)) fmt::print(" = {}", e.value.repr());
  fmt::print("\n    {}\n", e.place);
  for (const auto& before : e.shadowed)
    fmt::print("    instead of {} of {}\n", before.value.repr(), before.place);
  if (const auto found = without_effect.find(e.name); found != without_effect.end())
    fmt::print("    without effect: {}\n", found->second);
}

nlohmann::ordered_json json_of(const gin::Explained& e, const Reasons& without_effect) {
  nlohmann::ordered_json json = {{"name", e.name},
                                 {"value", e.value.repr()},
                                 {"written", e.written.repr()},
                                 {"place", e.place}};
  json["shadowed"] = nlohmann::ordered_json::array();
  for (const auto& before : e.shadowed)
    json["shadowed"].push_back({{"value", before.value.repr()}, {"place", before.place}});
  json["used"] = e.is_used;
  if (const auto found = without_effect.find(e.name); found != without_effect.end())
    json["without_effect"] = found->second;
  return json;
}

}  // namespace

void explain_config(const gin::CommandLine& command_line, const ShowConfigOptions& options) {
  gin::Registry registry;
  register_everything(registry);
  const auto parsed = parsed_config(registry, command_line);
  const gin::Config& config = *parsed;
  print_unknown(config);
  Reasons without_effect;
  for (const gin::IneffectiveBinding& b :
       gin::ineffective_bindings(config, ineffective_parameters()))
    without_effect[b.name] = b.reason;
  const auto all = gin::explain(config, read_by_program({"MODEL", "TASK_FEATURE_LENGTHS"}));
  if (options.format.is_json()) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const gin::Explained& e : all) json.push_back(json_of(e, without_effect));
    fmt::print("{}\n", json.dump(1));
    return;
  }
  for (const gin::Explained& e : all)
    if (e.is_used) print_text(e, without_effect);
  bool is_first = true;
  for (const gin::Explained& e : all) {
    if (e.is_used) continue;
    if (std::exchange(is_first, false)) fmt::print("\n# Nothing uses:\n");
    print_text(e, without_effect);
  }
}

}  // namespace quintet
