#include "data/vocabularies/vocabulary_file.h"

#include <mutex>
#include <set>

#include "data/vocabularies/bert_vocabulary.h"
#include "data/vocabularies/codepoint_vocabularies.h"
#include "data/vocabularies/file_vocabulary.h"
#include "runtime/base/check.h"
#include "runtime/base/files/path_map.h"
#include "runtime/base/files/read_file.h"
#include "runtime/base/formats/crc32c.h"
#include "runtime/base/formats/json.h"

namespace quintet::data {
namespace {

namespace fs = std::filesystem;

/// Of this process: vocabularies are made by gin files, wherever these name them.
struct Files {
  std::mutex mutex;
  std::map<std::string, VocabularyCopy> copies;  // by path
  std::map<std::string, VocabularyFile> read;    // by path
  std::set<std::string> reported;                // paths whose copy was read
};

Files& files() {
  static Files all;
  return all;
}

/// Where to read `path`: there, or its copy if nothing is there.
fs::path place_of(const std::string& path, Files& all) {
  std::error_code ignored;
  const auto copy = all.copies.find(path);
  if (copy == all.copies.end()) return local_path(path);
  if (const auto local = find_local_path(path); local && fs::exists(*local, ignored)) return *local;
  const fs::path& place = copy->second.place;
  QT_CHECK_AS(
      ExitCode::kData, fs::exists(place, ignored),
      "{}: the vocabulary is not there, and neither is the run's own copy {}; bring one back", path,
      place.string());
  if (all.reported.insert(path).second)
    fmt::print(stderr, "{}: is not there; reading the run's own copy {}\n", path, place.string());
  return place;
}

std::string path_of(const Vocabulary& vocabulary) {
  if (const auto* pieces = dynamic_cast<const SentencePieceVocabulary*>(&vocabulary))
    return pieces->model_file();
  if (const auto* other = dynamic_cast<const FileVocabulary*>(&vocabulary))
    return other->model_file();
  if (const auto* bert = dynamic_cast<const BertWordPieceVocabulary*>(&vocabulary))
    return bert->vocab_lookup_table();
  if (const auto* characters = dynamic_cast<const PartialCodepointVocabulary*>(&vocabulary))
    return characters->vocab_file();
  return "";
}

}  // namespace

std::string to_string(const VocabularyFile& file) {
  return fmt::format("{} ({} bytes, CRC-32C {:08x})",
                     file.read_from.empty() ? file.path : file.read_from.string(), file.bytes,
                     file.crc);
}

std::string read_vocabulary_file(const std::string& path) {
  Files& all = files();
  const std::lock_guard lock(all.mutex);
  const auto copy = all.copies.find(path);
  const bool has_bytes = copy != all.copies.end() && copy->second.bytes;
  const fs::path place = has_bytes ? copy->second.place : place_of(path, all);
  std::string bytes = has_bytes ? *copy->second.bytes : read_file(place);
  check_is_fetched(bytes, place);
  all.read[path] = {path, place, static_cast<int64_t>(bytes.size()), crc32c(bytes)};
  return bytes;
}

std::optional<VocabularyFile> file_of(const Vocabulary& vocabulary) {
  const std::string path = path_of(vocabulary);
  Files& all = files();
  const std::lock_guard lock(all.mutex);
  const auto found = all.read.find(path);
  return found == all.read.end() ? std::nullopt : std::optional(found->second);
}

void use_vocabulary_copies(std::map<std::string, VocabularyCopy> copies) {
  Files& all = files();
  const std::lock_guard lock(all.mutex);
  all.copies = std::move(copies);
  all.reported.clear();
}

}  // namespace quintet::data
