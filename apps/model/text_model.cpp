#include "apps/model/text_model.h"

#include <algorithm>

#include "apps/config/export/export_names.h"
#include "apps/model/trained_dataset.h"
#include "checkpoint/huggingface/config.h"
#include "data/batches/batches.h"
#include "data/huggingface/huggingface_vocabulary.h"
#include "data/tasks/gin_types.h"

namespace quintet {

TextModel::TextModel(const std::string& model_dir, const gin::CommandLine& line, bool ids_only,
                     Load load, const std::string& adapter, std::string name)
    : trained_(open_trained_model(model_dir, line, load, adapter)),
      name_(name.empty() ? trained_.name : std::move(name)) {
  const ConfiguredModel& model = *trained_.model;
  decoder_only_ = model.model->spec().decoder_only();
  inputs_ = vocabulary(decoder_only_ ? model.output_vocabulary : model.input_vocabulary, ids_only);
  targets_ = vocabulary(model.output_vocabulary, ids_only);
  chat_ = chat_template(trained_.session->config());
  defaults_ = generation_defaults_of(*trained_.reader);
  if (!defaults_) {
    learn_from_the_runs_task();
    learn_from_export();
    return;
  }
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

/// Lengths and features of export_lib.save, whose configuration a bundle may have.
void TextModel::learn_from_export() {
  const gin::Config& config = trained_.session->config();
  const auto value = [&](const char* parameter) {
    const std::string binding = fmt::format("{}.{}", kSave, parameter);
    return config.query(binding) == nullptr ? gin::Value() : config.evaluate(binding);
  };
  if (const gin::Value found = value("task_feature_lengths"); !found.is_none()) {
    const auto lengths = gin::as<data::Lengths>(found, {"export_lib.save.task_feature_lengths"});
    input_length_ = data::find_length(lengths, "inputs");
    answer_length_ = data::find_length(lengths, "targets").value_or(answer_length_);
  }
  std::optional<data::Features> features;
  if (const gin::Value found = value("output_features"); !found.is_none())
    features = gin::as<data::Features>(found, {"export_lib.save.output_features"});
  if (const gin::Value found = value("mixture_or_task_name"); !found.is_none())
    features = trained_.session
                   ->task(gin::as<std::string>(found, {"export_lib.save.mixture_or_task_name"}))
                   ->output_features();
  if (features)
    if (const auto* inputs = data::find_feature(*features, "inputs")) add_eos_ = inputs->add_eos;
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
  if (input_length_) {
    const auto most =
        static_cast<size_t>(std::max<int64_t>(*input_length_ - (add_eos_ ? 1 : 0), 1));
    ids.resize(std::min(ids.size(), most));  // as append_eos_after_trim
  }
  if ((add_eos_ && theirs == nullptr) || ids.empty()) ids.push_back(inputs_->eos_id().value_or(1));
  return ids;
}

}  // namespace quintet
