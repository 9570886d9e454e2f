#include "apps/flags/lora_flags.h"

#include "apps/flags/command_line.h"

namespace quintet {

void LoraFlags::add_to(CLI::App& app) {
  constexpr const char* kGroup = "Adapters (LoRA)";
  CLI::Option* const rank_option =
      app.add_option("--lora_rank", rank,
                     "train adapters of this rank, and nothing else: checkpoints hold them alone, "
                     "and are read with the model they are of; default: all is trained")
          ->group(kGroup)
          ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  const auto add = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->group(kGroup)->needs(rank_option);
  };
  add("--lora_alpha", config.alpha, "what an adapter adds is multiplied by alpha / rank")
      ->check(CLI::PositiveNumber);
  add("--lora_dropout", config.dropout_rate, "dropout rate of an adapter's input")
      ->check(CLI::Range(0.0, 0.99));
  add("--lora_base", config.base_dtype,
      "the model's kernels in memory, which stay as they are: float32, bfloat16 in half of it, "
      "int8 or fp8 (a scale a column) in a quarter")
      ->check(CLI::IsMember({"float32", "bfloat16", "int8", "fp8"}));
  add("--lora_target", config.targets,
      "which kernels of layers have adapters: an expression that is found in /NAME, as query or "
      "'/mlp/'; may be repeated; default: queries and values of attention")
      ->allow_extra_args(false);
}

std::optional<LoraConfig> LoraFlags::lora() const {
  if (!rank) return std::nullopt;
  LoraConfig lora = config;
  lora.rank = *rank;
  return lora;
}

}  // namespace quintet
