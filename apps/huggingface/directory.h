#pragma once
// What a model of ours is as a Hugging Face directory: all but its weights. The opposite of gin_text.h.
//
//   const HuggingFaceDirectory directory = huggingface_directory(*configured);

#include "apps/huggingface/tokenizer_files.h"
#include "checkpoint/huggingface/huggingface_reader.h"
#include "models/configurables.h"

namespace quintet {

struct HuggingFaceDirectory {
  huggingface::Config config;
  TextFiles files;  // tokenizer, generation_config.json
};

/// Throws ExitCode::kUsage for a model that Hugging Face's classes have no place for
/// (huggingface_config), or whose vocabularies differ or are neither pieces nor bytes.
HuggingFaceDirectory huggingface_directory(const ConfiguredModel& model);
/// Of another directory, as the reader's tensors are: scaled outputs are a table of their own or tied.
HuggingFaceDirectory huggingface_directory(const huggingface::Reader& from);

}  // namespace quintet
