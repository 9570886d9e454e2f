#pragma once
// The formats of checkpoints, one row each: what shows that a path holds it, and what reads it.
//
//   const CheckpointFormat* format = format_at("/models/flan-t5-small");
//   format->name;   // "a Hugging Face directory"

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "checkpoint/checkpoint_reader.h"

namespace quintet {

struct CheckpointFormat {
  const char* name;
  /// By content, quickly (checkpoint/open/recognize.h).
  bool (*is_at)(const std::filesystem::path& path);
  /// Null: it is known and cannot be read.
  std::shared_ptr<const CheckpointReader> (*open)(const std::filesystem::path& path);
};

/// In the order in which they are tried.
std::span<const CheckpointFormat> checkpoint_formats();
/// The format at a path; null if it is none of them.
const CheckpointFormat* format_at(const std::filesystem::path& path);

/// Where the base lies that the adapter at `adapter` names. Throws kData naming both if there is nothing, as of names of
/// the Hugging Face hub, or the adapter itself.
std::filesystem::path path_of_base(const std::string& base, const std::filesystem::path& adapter);

}  // namespace quintet
