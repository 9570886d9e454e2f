#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/config/gin_session.h"
#include "apps/config/ineffective.h"
#include "apps/config/show/parsed_config.h"
#include "apps/config/show/show_config.h"
#include "apps/huggingface/gin_text.h"
#include "runtime/base/check.h"
#include "runtime/gin/resolved.h"

namespace quintet {
namespace {

gin::NamedValues side(const gin::Registry& registry, const std::string& path,
                      gin::CommandLine command_line) {
  command_line.files = {path};
  const auto config = parsed_config(registry, command_line);
  print_unknown(*config);
  return bound_values(*config);
}

struct Difference {
  std::string name;
  const gin::Value *a, *b;  // null: not bound
};

std::vector<Difference> differences_of(const gin::NamedValues& a, const gin::NamedValues& b) {
  std::vector<Difference> all;
  for (const auto& [name, value] : a.items())
    if (const gin::Value* other = b.find(name);
        other == nullptr || gin::to_json(*other) != gin::to_json(value))
      all.push_back({name, &value, other});
  for (const auto& [name, value] : b.items())
    if (a.find(name) == nullptr) all.push_back({name, nullptr, &value});
  return all;
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
  auto json = nlohmann::ordered_json::object();
  if (!options.format.is_json()) fmt::print("--- {}\n+++ {}\n", files[0], files[1]);
  for (const Difference& difference : differences_of(a, b))
    for (const auto& [key, sign, value] :
         {std::tuple("a", '-', difference.a), {"b", '+', difference.b}}) {
      if (value == nullptr) continue;
      if (!options.format.is_json())
        fmt::print("{}{} = {}\n", sign, difference.name, value->repr());
      else
        json[difference.name][key] = nlohmann::ordered_json::parse(gin::to_json(*value));
    }
  if (options.format.is_json()) fmt::print("{}\n", json.dump(1));
}

}  // namespace quintet
