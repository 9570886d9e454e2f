#pragma once
// The model that is fine-tuned, as the gin of a run names it.

#include <string>
#include <vector>

#include "apps/model/trained_model.h"

namespace quintet {

struct FinetuneModel {
  std::vector<std::string> includes;  // gin files of the model, or its config.json
  std::string checkpoint;             // that the run starts from
  std::string class_name;             // "t5x.models.EncoderDecoderModel"
  bool has_vocabulary_macro = false;  // VOCABULARY; else get_input_vocabulary() answers
  TrainedModel trained;               // without parameters

  /// What --precision binds: the network's dtype, or the macro that all of a flaxformer network reads; and
  /// the import that it wants. Throws a usage error for a network without one.
  std::string precision_binding() const;
  std::string precision_import(const std::string& precision) const;
};

/// `path` and `line` as open_trained_model's, whose errors it throws.
FinetuneModel open_finetune_model(const std::string& path, const gin::CommandLine& line);

}  // namespace quintet
