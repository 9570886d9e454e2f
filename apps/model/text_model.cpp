#include "apps/model/text_model.h"

#include "apps/model/trained_dataset.h"
#include "checkpoint/huggingface/config.h"
#include "data/batches/batches.h"
#include "data/huggingface/huggingface_vocabulary.h"

namespace quintet {

TextModel::TextModel(const std::string& model_dir, const gin::CommandLine& line, bool ids_only,
                     Load load, const std::string& adapter, std::string name)
    : trained_(open_trained_model(model_dir, line, load, adapter)),
      name_(name.empty() ? trained_.model_dir.filename().string() : std::move(name)) {
  const ConfiguredModel& model = *trained_.model;
  decoder_only_ = model.model->spec().decoder_only();
  inputs_ = vocabulary(decoder_only_ ? model.output_vocabulary : model.input_vocabulary, ids_only);
  targets_ = vocabulary(model.output_vocabulary, ids_only);
  chat_ = chat_template(trained_.session->config());
  if (!huggingface::is_directory(trained_.model_dir)) {
    learn_from_the_runs_task();
    return;
  }
  defaults_ = read_generation_defaults(trained_.model_dir);
  answer_length_ = defaults_->max_new_tokens.value_or(answer_length_);
}

data::VocabularyPtr TextModel::vocabulary(const gin::Value& value, bool ids_only) const {
  auto found = value.object_as<const data::Vocabulary>();
  QT_CHECK(
      found != nullptr || ids_only,
      "{}: the model has no vocabulary, so its ids are no text; quintet generate --ids takes and "
      "gives ids",
      trained_.model_dir.string());
  return found;
}

int32_t TextModel::eos_id() const {
  if (defaults_ && !defaults_->eos_ids.empty()) return defaults_->eos_ids.front();
  return targets_ == nullptr ? 1 : targets_->eos_id().value_or(1);
}

std::vector<int32_t> TextModel::eos_ids() const {
  return defaults_ ? defaults_->eos_ids : std::vector<int32_t>{eos_id()};
}

/// Target length and whether inputs end with EOS, from the data the run was trained or evaluated
/// on.
void TextModel::learn_from_the_runs_task() {
  const auto dataset = dataset_of_run(trained_.session->config());
  if (!dataset) return;
  if (const auto length = data::find_length(dataset->task_feature_lengths, "targets"))
    answer_length_ = *length;
  learn_from(*dataset);
}

/// T5X's runs may name tasks that only their Python knows.
void TextModel::learn_from(const data::DatasetConfig& dataset) {
  try {
    const data::ProviderPtr provider = trained_.session->task(dataset);
    if (const auto* feature = data::find_feature(provider->output_features(), "inputs"))
      add_eos_ = feature->add_eos;
  } catch (const Error& error) {
    if (trained_.reader->is_native()) throw;
    fmt::print(stderr, "note: inputs end with EOS: {}\n", error.what());
  }
}

std::vector<int32_t> TextModel::encode(const std::string& text) const {
  const auto* theirs = dynamic_cast<const data::HuggingFaceVocabulary*>(inputs_.get());
  std::vector<int32_t> ids = theirs != nullptr ? theirs->encode_input(text) : inputs_->encode(text);
  if ((add_eos_ && theirs == nullptr) || ids.empty()) ids.push_back(inputs_->eos_id().value_or(1));
  return ids;
}

}  // namespace quintet
