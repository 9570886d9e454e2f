#include "apps/config/show/parsed_config.h"

#include "apps/config/gin_session.h"
#include "apps/huggingface/gin_text.h"
#include "runtime/gin/explain.h"

namespace quintet {

std::unique_ptr<gin::Config> parsed_config(const gin::Registry& registry,
                                           const gin::CommandLine& command_line) {
  auto config = std::make_unique<gin::Config>(
      registry, gin::Config::Options{.search_paths = command_line.search_paths,
                                     .roots = config_roots(),
                                     .skip_unknown = true,
                                     .read = read_config_file});
  for (const std::string& file : command_line.files) config->parse_file(file);
  config->parse_bindings(command_line.bindings);
  return config;
}

gin::NamedValues bound_values(const gin::Config& config) {
  gin::NamedValues values;
  for (const gin::Explained& bound : gin::explain(config, {}))
    values.set(bound.name, gin::with_full_names(bound.value));
  return values;
}

}  // namespace quintet
