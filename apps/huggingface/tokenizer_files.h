#pragma once
// The files of a Hugging Face directory beside its weights: tokenizer and generation_config.json.
//
//   for (const auto& [name, text] : huggingface_files(vocabulary.get(), 1)) write_new_file(folder / name, text);

#include <filesystem>
#include <map>
#include <string>

#include "data/vocabularies/vocabulary.h"

namespace quintet {

/// Contents by name.
using TextFiles = std::map<std::string, std::string>;

/// tokenizer_config.json and special_tokens_map.json of the vocabulary, spiece.model if it is a SentencePiece
/// vocabulary, and generation_config.json with T5's special ids; null: no tokenizer. Throws
/// ExitCode::kUsage naming a vocabulary that is neither pieces nor bytes, or whose extra ids rise.
TextFiles huggingface_files(const data::Vocabulary* vocabulary, int64_t eos_id);
/// Those of another Hugging Face directory, as they are.
TextFiles huggingface_files(const std::filesystem::path& folder, int64_t eos_id);

}  // namespace quintet
