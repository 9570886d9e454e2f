#pragma once
// A trained model that reads and writes text: its vocabularies, and what the run's task says of its
// inputs and outputs.
//
//   const TextModel model("/tmp/numbers", gin_line);
//   const std::vector<int32_t> ids = model.encode("words: 1234");

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/huggingface/generation_config.h"
#include "apps/model/trained_model.h"
#include "data/vocabularies/vocabulary.h"
#include "models/serving/chat_template.h"

namespace quintet {

class TextModel {
 public:
  /// Throws what open_trained_model throws, and a usage error if the model has no vocabulary, unless
  /// only ids are asked for.
  TextModel(const std::string& model_dir, const gin::CommandLine& line, bool ids_only = false,
            Load load = Load::to_generate, const std::string& adapter = "", std::string name = "");

  const TrainedModel& trained() const { return trained_; }
  const ConfiguredModel& configured() const { return *trained_.model; }
  /// By which clients call the model: as it was named, else the model directory's last part.
  const std::string& name() const { return name_; }
  bool decoder_only() const { return decoder_only_; }
  /// Null: the model has no vocabulary, only its ids can be asked for.
  const data::VocabularyPtr& targets() const { return targets_; }
  int32_t eos_id() const;
  /// All that end an answer: several where a Hugging Face directory names them.
  std::vector<int32_t> eos_ids() const;
  /// What a Hugging Face directory says of its answers; none: a run of ours.
  const std::optional<GenerationDefaults>& defaults() const { return defaults_; }
  /// Tokens of an answer, as the run was trained or evaluated; 128 if it does not say.
  int64_t answer_length() const { return answer_length_; }
  /// Ids of an input, with EOS if the task's inputs have it; never empty.
  std::vector<int32_t> encode(const std::string& text) const;
  /// Ids of the text alone, which may be none.
  std::vector<int32_t> encode_text(const std::string& text) const { return inputs_->encode(text); }
  /// How the run was trained to see conversations, if it was.
  const std::optional<ChatTemplate>& chat() const { return chat_; }

 private:
  data::VocabularyPtr vocabulary(const gin::Value& value, bool ids_only) const;
  void learn_from_the_runs_task();
  void learn_from_export();
  void learn_from(const data::DatasetConfig& dataset);

  TrainedModel trained_;
  std::string name_;
  bool decoder_only_ = false, add_eos_ = true;
  int64_t answer_length_ = 128;
  std::optional<int64_t> input_length_;  // longer inputs are cut, where T5X's export says so
  std::optional<GenerationDefaults> defaults_;
  std::optional<ChatTemplate> chat_;
  data::VocabularyPtr inputs_, targets_;
};

}  // namespace quintet
