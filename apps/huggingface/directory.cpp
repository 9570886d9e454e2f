#include "apps/huggingface/directory.h"

#include "apps/huggingface/config_of.h"

namespace quintet {
namespace {

data::VocabularyPtr vocabulary_of(const ConfiguredModel& model) {
  const auto input = model.input_vocabulary.object_as<const data::Vocabulary>();
  const auto output = model.output_vocabulary.object_as<const data::Vocabulary>();
  QT_CHECK(input == output || (input && output && *input == *output),
           "the model's input_vocabulary is {}, its output_vocabulary {}: a Hugging Face directory "
           "has one tokenizer",
           input ? input->description() : "None", output ? output->description() : "None");
  return input;
}

}  // namespace

HuggingFaceDirectory huggingface_directory(const ConfiguredModel& model) {
  refuse_own_network(model.model->spec());
  HuggingFaceDirectory directory{huggingface_config(model.model->spec()), {}};
  const data::VocabularyPtr vocabulary = vocabulary_of(model);
  auto& eos_ids = directory.config.eos_token_ids;
  if (vocabulary && vocabulary->eos_id()) eos_ids = {*vocabulary->eos_id()};
  directory.files = huggingface_files(vocabulary.get(), eos_ids.front());
  return directory;
}

HuggingFaceDirectory huggingface_directory(const huggingface::Reader& from) {
  HuggingFaceDirectory directory{from.config(), {}};
  directory.config.tie_word_embeddings = directory.config.scale_decoder_outputs = from.tied();
  directory.files = huggingface_files(from.folder(), from.config().eos_token_ids.front());
  return directory;
}

}  // namespace quintet
