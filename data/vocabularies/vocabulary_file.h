#pragma once
// Files of vocabularies: what identifies each as this process read it, and copies of them, which
// are read where a file is not at its path any more.
//
//   use_vocabulary_copies({{"sp.model", {"/runs/a/vocabularies/0a1b2c3d-sp.model"}}});
//   const std::string model = read_vocabulary_file("sp.model");
//   file_of(vocabulary)->crc;

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "data/vocabularies/vocabulary.h"

namespace quintet::data {

/// A file that decides a vocabulary's ids, as it was read.
struct VocabularyFile {
  std::string path;                 // as configured
  std::filesystem::path read_from;  // the same, or its copy
  int64_t bytes = 0;
  uint32_t crc = 0;  // CRC-32C
};
/// "sp.model (2312 bytes, CRC-32C 0a1b2c3d)"
std::string to_string(const VocabularyFile& file);

/// The file's bytes. Where nothing is at `path` and there is a copy, the copy's, which a line on
/// stderr says, once a path. Throws kData naming both if neither can be read.
std::string read_vocabulary_file(const std::string& path);
/// The file that a vocabulary was read from; none: no file decides its ids.
std::optional<VocabularyFile> file_of(const Vocabulary& vocabulary);

/// A copy of a vocabulary's file.
struct VocabularyCopy {
  std::filesystem::path place;  // the copy, or the file that has its bytes among others
  std::optional<std::string> bytes =
      {};  // then: these, which are taken even where something is at the path
};
/// From now on, in this process: path -> copy. Those of an earlier call are forgotten.
void use_vocabulary_copies(std::map<std::string, VocabularyCopy> copies);

}  // namespace quintet::data
