#pragma once
// The files that --train and --validation name, as tasks.

#include <string>
#include <vector>

#include "apps/finetune/finetune_flags.h"

namespace quintet {

/// What the task is called, or the mixture of several.
inline constexpr const char* kFinetuneTask = "finetune";

/// The files of a name, or of all where flags give none.
struct FinetuneTask {
  std::string name, format;                    // ".jsonl", ".csv" or ".tsv"
  std::vector<std::string> train, validation;  // no validation: a part of train is held out
};

/// Throws a usage error for files of other kinds, and for names that do not go together.
std::vector<FinetuneTask> finetune_tasks(const FinetuneFlags& flags);

/// A file as every folder names it.
std::string absolute_file(const std::string& file);

}  // namespace quintet
