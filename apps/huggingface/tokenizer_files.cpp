#include "apps/huggingface/tokenizer_files.h"

#include <nlohmann/json.hpp>

#include "data/huggingface/huggingface_vocabulary.h"
#include "data/vocabularies/vocabulary_file.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/files/read_file.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kFiles[] = {"spiece.model",          "tokenizer.json",
                                  "tokenizer_config.json", "special_tokens_map.json",
                                  "added_tokens.json",     kGeneration};

std::string text_of(const nlohmann::ordered_json& json) { return json.dump(2) + "\n"; }

/// The tokens of T5's ids 0, 1 and 2, and its sentinels.
nlohmann::ordered_json special_tokens(const std::string& pad, const std::string& eos,
                                      const std::string& unk, int64_t extra_ids) {
  nlohmann::ordered_json json = {{"eos_token", eos}, {"unk_token", unk}, {"pad_token", pad}};
  if (extra_ids == 0) return json;
  for (int64_t i = 0; i < extra_ids; ++i)
    json["additional_special_tokens"].push_back(fmt::format("<extra_id_{}>", i));
  return json;
}

void add_settings(TextFiles& files, const std::string& tokenizer_class,
                  const nlohmann::ordered_json& special, int64_t extra_ids) {
  nlohmann::ordered_json settings = special;
  settings["tokenizer_class"] = tokenizer_class;
  settings["extra_ids"] = extra_ids;
  settings["model_max_length"] = 512;  // of inputs, as T5's; longer ones are warned of
  settings["clean_up_tokenization_spaces"] = false;
  files["special_tokens_map.json"] = text_of(special);
  files["tokenizer_config.json"] = text_of(settings);
}

void add_pieces(TextFiles& files, const data::SentencePieceVocabulary& pieces) {
  const int32_t extra_ids = pieces.extra_ids(), first = pieces.base_vocab_size() - extra_ids;
  QT_CHECK(extra_ids < 2 ||
               pieces.piece_of_id(first).ends_with(fmt::format("<extra_id_{}>", extra_ids - 1)),
           "the model's vocabulary has reverse_extra_ids = False: Hugging Face's T5 counts "
           "<extra_id_0> from the last id down");
  QT_CHECK(pieces.eos_id() && *pieces.eos_id() > 0 && pieces.unk_id(),
           "{}: has no end-of-sequence or no unknown piece", pieces.model_file());
  const auto file = data::file_of(pieces);
  QT_ASSERT(file.has_value());
  files["spiece.model"] = read_file(file->read_from, ExitCode::kData);
  add_settings(files, "T5Tokenizer",
               special_tokens(pieces.piece_of_id(0), pieces.piece_of_id(*pieces.eos_id()),
                              pieces.piece_of_id(*pieces.unk_id()), extra_ids),
               extra_ids);
}

std::string generation_config(int64_t eos_id) {
  return text_of({{"decoder_start_token_id", 0}, {"eos_token_id", eos_id}, {"pad_token_id", 0}});
}

}  // namespace

TextFiles huggingface_files(const data::Vocabulary* vocabulary, int64_t eos_id) {
  TextFiles files = {{kGeneration, generation_config(eos_id)}};
  if (vocabulary == nullptr) return files;
  const auto* pieces = dynamic_cast<const data::SentencePieceVocabulary*>(vocabulary);
  const auto* tokenizer = dynamic_cast<const data::HuggingFaceVocabulary*>(vocabulary);
  if (tokenizer != nullptr && !tokenizer->model_file().empty()) {
    files = huggingface_files(fs::path(tokenizer->model_file()).parent_path(), eos_id);
    files[kGeneration] = generation_config(eos_id);
    return files;
  }
  const bool is_bytes =
      tokenizer != nullptr || dynamic_cast<const data::ByteVocabulary*>(vocabulary) != nullptr;
  QT_CHECK(
      pieces != nullptr || is_bytes,
      "the model's vocabulary is {}: Hugging Face's T5 has a SentencePiece or a byte vocabulary",
      vocabulary->description());
  if (pieces != nullptr)
    add_pieces(files, *pieces);
  else
    add_settings(files, "ByT5Tokenizer",
                 special_tokens("<pad>", "</s>", "<unk>", vocabulary->extra_ids()),
                 vocabulary->extra_ids());
  return files;
}

TextFiles huggingface_files(const fs::path& folder, int64_t eos_id) {
  TextFiles files;
  for (const char* name : kFiles)
    if (is_there(folder / name)) files[name] = read_file(folder / name, ExitCode::kData);
  if (!files.contains(kGeneration)) files[kGeneration] = generation_config(eos_id);
  return files;
}

}  // namespace quintet
