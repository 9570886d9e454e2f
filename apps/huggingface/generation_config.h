#pragma once
// generation_config.json of a Hugging Face directory: what answers are like unless flags say otherwise.
//
//   const GenerationDefaults defaults = read_generation_defaults("/models/flan-t5-small");

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "models/decoding/search/logit_rules.h"

namespace quintet {

class CheckpointReader;

struct GenerationDefaults {
  std::vector<int32_t> eos_ids = {1};
  std::optional<int64_t> max_new_tokens, num_beams, min_new_tokens, no_repeat_ngram_size, top_k;
  std::optional<double> length_penalty, repetition_penalty, temperature, top_p;
  std::optional<std::string> early_stopping;  // as the flag: no, yes, never
  bool renormalize_logits = false;
  decoding::LogitRules rules;  // forbidden, forced and favoured tokens; what has no field above
};

/// Of the directory's generation_config.json, or without one of config.json. Fields that ask for something
/// generation here does not do are warned of on stderr. Throws kData naming file and field for values of a
/// wrong type or range.
GenerationDefaults read_generation_defaults(const std::filesystem::path& directory);

/// What a bundle's state keeps of it under kGenerationConfig, so that it answers as the directory does: JSON, of a directory or
/// of a bundle that is made into another; "" of any other.
std::string kept_generation_config(const CheckpointReader& from);
inline constexpr const char* kGenerationConfig = "generation_config";
/// Of a directory or a bundle of one; none of any other.
std::optional<GenerationDefaults> generation_defaults_of(const CheckpointReader& from);

}  // namespace quintet
