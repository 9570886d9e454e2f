#pragma once
// --lora_rank and what goes with it: of verbs that train adapters, or plan that.

#include <optional>

#include "models/lora.h"

namespace CLI {
class App;
}

namespace quintet {

struct LoraFlags {
  std::optional<int64_t> rank;  // none: no adapters
  LoraConfig config;

  void add_to(CLI::App& app);
  std::optional<LoraConfig> lora() const;
};

}  // namespace quintet
