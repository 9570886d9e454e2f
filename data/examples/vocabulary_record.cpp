#include "data/examples/vocabulary_record.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/base/formats/crc32c.h"

namespace quintet::data {
namespace {

/// Some descriptions list every character or word.
std::string shortened(const std::string& description) {
  constexpr size_t kLong = 400, kStart = 120;
  if (description.size() <= kLong) return description;
  return fmt::format("{}.. ({} characters, CRC-32C {:08x})", description.substr(0, kStart),
                     description.size(), crc32c(description));
}

nlohmann::ordered_json to_json(const VocabularyFile& file) {
  return {{"path", file.path}, {"bytes", file.bytes}, {"crc32c", fmt::format("{:08x}", file.crc)}};
}

VocabularyFile file_from(const Json& json) {
  VocabularyFile file;
  file.path = json["path"].as_string();
  file.bytes = json["bytes"].as_int();
  const std::string crc = json["crc32c"].as_string();
  const auto [end, error] = std::from_chars(crc.data(), crc.data() + crc.size(), file.crc, 16);
  QT_CHECK_AS(ExitCode::kData, crc.size() == 8 && end == crc.data() + 8 && error == std::errc(),
              "{}: expected 8 hexadecimal digits as crc32c, found '{}'", json.path(), crc);
  return file;
}

}  // namespace

std::string to_string(const VocabularyRecord& record) {
  return record.description + (record.file ? " of " + to_string(*record.file) : "");
}

VocabularyRecord record_of(const Vocabulary& vocabulary) {
  return {shortened(vocabulary.description()), file_of(vocabulary)};
}

VocabularyRecords records_of(const Features& features) {
  VocabularyRecords records;
  for (const auto& [name, feature] : features)
    if (feature.vocabulary != nullptr) records[name] = record_of(*feature.vocabulary);
  return records;
}

nlohmann::ordered_json to_json(const VocabularyRecords& records) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, record] : records) {
    json[name] = {{"vocabulary", record.description}};
    if (record.file) json[name]["file"] = to_json(*record.file);
  }
  return json;
}

VocabularyRecords vocabulary_records_from(const Json& json) {
  VocabularyRecords records;
  for (const auto& [name, record] : json.members()) {
    if (record.is_string()) {  // caches from before files were recorded
      records[name] = {shortened(record.as_string()), std::nullopt};
      continue;
    }
    records[name].description = record["vocabulary"].as_string();
    if (record.has("file")) records[name].file = file_from(record["file"]);
  }
  return records;
}

std::string difference(const VocabularyRecord& then, const VocabularyRecord& now) {
  const bool same_file = !then.file || !now.file ||
                         (then.file->bytes == now.file->bytes && then.file->crc == now.file->crc);
  if (then.description == now.description && same_file) return "";
  return fmt::format("{}; found {}", to_string(then), to_string(now));
}

}  // namespace quintet::data
