#pragma once
// What a model is converted from: its checkpoint, and the configuration that says what it is.

#include "apps/huggingface/directory.h"
#include "apps/model/trained_model.h"

namespace quintet {

struct ModelSource {
  TrainedModel trained;  // without parameters; no model of a Hugging Face directory that stays one
  std::shared_ptr<const CheckpointReader> reader, unadapted;  // with the adapter merged in
  bool is_huggingface = false;

  /// The model as a Hugging Face directory; throws what huggingface_directory does.
  HuggingFaceDirectory directory() const;
};

/// `path` and `gin_line` as open_trained_model's. `needs_model`: whether a configuration of ours is wanted.
/// `adapter`: merged into it; empty: none.
ModelSource open_model_source(const std::filesystem::path& path, const gin::CommandLine& gin_line,
                              bool needs_model, const std::string& adapter = "");

}  // namespace quintet
