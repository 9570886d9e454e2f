#pragma once
// What identifies the vocabularies that a checkpoint was trained or a cache made with, kept beside
// them: ids mean nothing under another vocabulary.
//
//   VocabularyRecords records = {{"inputs", record_of(*vocabulary)}};
//   nlohmann::json(...)["vocabularies"] = to_json(records);
//   difference(then, now);                   // "", or what both are

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "data/examples/preprocessor.h"
#include "data/vocabularies/vocabulary_file.h"
#include "runtime/base/formats/json.h"

namespace quintet::data {

struct VocabularyRecord {
  std::string description;             // Vocabulary::description; of a long one the start and a CRC
  std::optional<VocabularyFile> file;  // none: no file decides its ids
};
/// "SentencePieceVocabulary(pieces=64, crc32=..) of sp.model (2312 bytes, CRC-32C 0a1b2c3d)"
std::string to_string(const VocabularyRecord& record);
VocabularyRecord record_of(const Vocabulary& vocabulary);

/// By what they are to their owner: the name of a feature, say.
using VocabularyRecords = std::map<std::string, VocabularyRecord>;
VocabularyRecords records_of(const Features& features);

nlohmann::ordered_json to_json(const VocabularyRecords& records);
/// Throws kData naming the member that is missing or of another type.
VocabularyRecords vocabulary_records_from(const Json& json);

/// Empty if both give the same ids to the same text: equal descriptions, and files of equal size
/// and CRC-32C where both have one; where they lie and what they are called does not matter. Else a
/// text with both.
std::string difference(const VocabularyRecord& then, const VocabularyRecord& now);

}  // namespace quintet::data
