#pragma once
// A Hugging Face directory's config.json as gin: it is read wherever a gin file is.
//
//   quintet config /models/flan-t5-small/config.json
//   include '/models/flan-t5-small/config.json'      # in a gin file: MODEL, VOCABULARY, OPTIMIZER

#include <filesystem>
#include <string>

namespace quintet {

/// The gin text that stands for config.json of a directory: network, vocabulary, an optimizer to train
/// with. Throws what huggingface::Reader throws.
std::string huggingface_gin_text(const std::filesystem::path& directory);

/// A gin file's text, what stands for a config.json, or what a bundle has. Throws as read_gin_file.
std::string read_config_file(const std::string& path);

}  // namespace quintet
