#include "apps/input/run_vocabularies.h"

#include <nlohmann/json.hpp>

#include "apps/config/checkpoint_config.h"
#include "checkpoint/bundle/bundle.h"
#include "data/vocabularies/vocabulary_file.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/crc32c.h"
#include "runtime/base/process/messages.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "vocabularies";
constexpr const char* kRecord = "record.json";  // in kFolder

using VocabularyPtr = data::VocabularyPtr;

/// Roles and vocabularies of the model; those that it has.
std::vector<std::pair<std::string, VocabularyPtr>> of_model(const ConfiguredModel& model) {
  std::vector<std::pair<std::string, VocabularyPtr>> all;
  for (const auto& [name, value] : {std::pair("model.input_vocabulary", &model.input_vocabulary),
                                    {"model.output_vocabulary", &model.output_vocabulary}})
    if (!value->is_none()) all.emplace_back(name, gin::as<VocabularyPtr>(*value, {name}));
  return all;
}

void check_ids(const ConfiguredModel& model, const std::string& owner,
               const data::Vocabulary& vocabulary) {
  const int64_t rows = model.model->vocab_size();
  QT_CHECK(
      vocabulary.vocab_size() <= rows,
      "{} has {} ids ({}), the model has vocab_size {}: ids from {} on would have no embedding. "
      "Bind network.T5Config.vocab_size (TransformerConfig.vocab_size, Embed.num_embeddings) to "
      "{} or more, or another vocabulary",
      owner, vocabulary.vocab_size(), data::record_of(vocabulary).description, rows, rows,
      vocabulary.vocab_size());
}

/// A task's vocabularies of inputs and of targets, as t5x.utils.get_vocabulary finds them.
std::pair<VocabularyPtr, VocabularyPtr> of_task(const data::Provider& provider) {
  const data::Features& features = provider.output_features();
  const auto* inputs = data::find_feature(features, "inputs");
  const auto* targets = data::find_feature(features, "targets");
  if (inputs != nullptr && targets != nullptr) return {inputs->vocabulary, targets->vocabulary};
  std::vector<VocabularyPtr> all, with_text;
  for (const auto& [name, feature] : features) {
    all.push_back(feature.vocabulary);
    if (dynamic_cast<const data::PassThroughVocabulary*>(feature.vocabulary.get()) == nullptr)
      with_text.push_back(feature.vocabulary);
  }
  if (!with_text.empty()) all = with_text;
  for (const VocabularyPtr& one : all)
    QT_CHECK(
        *one == *all.front(),
        "task '{}' has no 'inputs' and 'targets' both, and features of different vocabularies, "
        "{} and {}; bind verify_matching_vocabs_fn = None if that is meant",
        provider.name(), all.front()->description(), one->description());
  return {all.front(), all.front()};
}

std::string copy_name(const data::VocabularyFile& file) {
  return fmt::format("{:08x}-{}", file.crc, fs::path(file.path).filename().string());
}

bool is_it(const data::VocabularyFile& file, const std::string& bytes) {
  return std::ssize(bytes) == file.bytes && crc32c(bytes) == file.crc;
}

/// As they were read.
std::string bytes_of(const data::VocabularyFile& file) {
  std::string bytes = data::read_vocabulary_file(file.path);
  QT_CHECK_AS(ExitCode::kData, is_it(file, bytes),
              "{}: has changed since this run read it, {}; start the run again",
              file.read_from.string(), to_string(file));
  return bytes;
}

/// Those that a bundle has.
std::map<std::string, data::VocabularyCopy> copies_in(const bundle::Reader& model) {
  std::map<std::string, data::VocabularyCopy> copies;
  const auto records = recorded_vocabularies(model);
  if (!records) return copies;
  for (const auto& [name, record] : *records)
    if (record.file)
      copies[record.file->path] = {model.folder(), model.vocabulary(copy_name(*record.file))};
  return copies;
}

/// The model directory of a checkpoint's folder.
fs::path model_dir_of(const fs::path& checkpoint) {
  return (checkpoint / "").lexically_normal().parent_path().parent_path();
}

/// How to get back to the recorded vocabulary.
std::string way_back(const fs::path& model_dir, const data::VocabularyRecord& then,
                     const data::VocabularyRecord& now) {
  if (!then.file || !now.file) return "bind the vocabulary as it was";
  if (then.file->crc == now.file->crc) return "bind its options, such as extra_ids, as they were";
  const fs::path copy = model_dir / kFolder / copy_name(*then.file);
  if (!is_there(copy)) return "bring that file back";
  return fmt::format(
      "bring that file back: the run's copy is {}, which is read where nothing is at {}",
      copy.string(), then.file->path);
}

}  // namespace

data::VocabularyRecords vocabularies_of(const ConfiguredModel& model,
                                        const data::Features& features) {
  data::VocabularyRecords records = data::records_of(features);
  for (const auto& [name, vocabulary] : of_model(model)) records[name] = record_of(*vocabulary);
  return records;
}

void check_ids(const ConfiguredModel& model) {
  for (const auto& [name, vocabulary] : of_model(model)) check_ids(model, name, *vocabulary);
}

void check_ids(const ConfiguredModel& model, const data::Provider& provider,
               const data::DatasetConfig& dataset) {
  check_ids(model);
  const data::Lengths& lengths = dataset.task_feature_lengths;
  for (const auto& [name, feature] : provider.output_features()) {
    const bool is_text = name == "inputs" || name == "targets" || name == "suffixes";
    if (is_text && (lengths.empty() || data::find_length(lengths, name)))
      check_ids(model,
                fmt::format("task '{}': seqio.Feature.vocabulary of '{}'", provider.name(), name),
                *feature.vocabulary);
  }
}

void verify_matching_vocabs(const ConfiguredModel& model, const data::Provider& provider) {
  const auto [inputs, targets] = of_task(provider);
  for (const bool is_input : {true, false}) {
    const char* role = is_input ? "input_vocabulary" : "output_vocabulary";
    const gin::Value& value = is_input ? model.input_vocabulary : model.output_vocabulary;
    const data::Vocabulary& wanted = is_input ? *inputs : *targets;
    const auto own = gin::as<VocabularyPtr>(value, {role});
    QT_CHECK(
        own != nullptr && *own == wanted,
        "task '{}' and the model have different vocabularies: model.{} is {} in the task's "
        "'{}'; bind one vocabulary for both, or train_script.train.verify_matching_vocabs_fn = "
        "None (or infer_script.infer's) if that is meant",
        provider.name(), role,
        own == nullptr ? fmt::format("None, not {}", wanted.description())
                       : difference(record_of(*own), record_of(wanted)),
        is_input ? "inputs" : "targets");
  }
}

std::optional<data::VocabularyRecords> recorded_vocabularies(const CheckpointReader& checkpoint) {
  const Json state = Json::parse(checkpoint.state_json(), checkpoint.folder().string() + ": state");
  if (!state.has("vocabularies")) return std::nullopt;
  return data::vocabulary_records_from(state["vocabularies"]);
}

void check_recorded(const CheckpointReader& checkpoint, const data::VocabularyRecords& now,
                    bool speaks, const std::string& advice) {
  if (!checkpoint.is_native()) return;  // whose vocabulary lies beside its weights
  const std::string where = checkpoint.folder().string();
  const auto recorded = recorded_vocabularies(checkpoint);
  if (!recorded && speaks)
    print_warning(
        "{}: does not say with which vocabularies it was trained (an older quintet "
        "saved it); they are not compared",
        where);
  if (!recorded) return;
  for (const auto& [name, vocabulary] : now) {
    const auto then = recorded->find(name);
    if (then == recorded->end()) continue;
    const std::string other = difference(then->second, vocabulary);
    QT_CHECK_AS(ExitCode::kData, other.empty(),
                "{}: was trained with another vocabulary: {} was {}; {}{}", where, name, other,
                way_back(model_dir_of(checkpoint.folder()), then->second, vocabulary), advice);
  }
}

std::map<std::string, std::string> vocabulary_files(const data::VocabularyRecords& now) {
  std::map<std::string, std::string> files;
  for (const auto& [name, record] : now)
    if (record.file) files[copy_name(*record.file)] = bytes_of(*record.file);
  return files;
}

void copy_vocabularies(const fs::path& model_dir, const data::VocabularyRecords& now) {
  const fs::path folder = model_dir / kFolder;
  for (const auto& [name, record] : now) {
    if (!record.file) continue;
    const fs::path copy = folder / copy_name(*record.file);
    if (is_there(copy) && is_it(*record.file, read_file(copy))) continue;
    const std::string bytes = bytes_of(*record.file);
    make_folders(folder);
    atomic_write_file(copy, bytes);
  }
  if (now.empty()) return;
  make_folders(folder);
  atomic_write_file(folder / kRecord, to_json(now).dump(2) + "\n");
}

void use_copies_of(const fs::path& model_dir) {
  if (bundle::is_at(model_dir))
    return data::use_vocabulary_copies(copies_in(bundle::Reader(model_dir)));
  const fs::path folder = model_dir / kFolder;
  std::map<std::string, data::VocabularyCopy> copies;
  if (is_there(folder / kRecord))
    for (const auto& [name, record] : data::vocabulary_records_from(Json::read(folder / kRecord)))
      if (record.file) copies[record.file->path] = {folder / copy_name(*record.file)};
  data::use_vocabulary_copies(std::move(copies));
}

void use_copies_of(const gin::Config& config, const std::string& binding) {
  const gin::Value value = config.evaluate(binding);
  if (value.is_none()) return;  // the call says what is missing
  const auto restore = gin::as<RestoreCheckpointConfig>(value, {binding});
  if (restore.path.empty()) return;
  if (bundle::is_at(restore.path.front())) return use_copies_of(restore.path.front());
  const fs::path path = fs::path(restore.path.front()) / "";
  use_copies_of(path.parent_path().filename().string().starts_with("checkpoint_")
                    ? path.parent_path().parent_path()
                    : path.parent_path());
}

}  // namespace quintet
