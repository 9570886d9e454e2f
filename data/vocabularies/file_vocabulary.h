#pragma once
// A vocabulary whose ids a file decides, for those who record which.

#include <string>

#include "data/vocabularies/vocabulary.h"

namespace quintet::data {

class FileVocabulary : public Vocabulary {
 public:
  /// Its path as configured; empty: no file decides the ids.
  virtual std::string model_file() const = 0;
};

}  // namespace quintet::data
