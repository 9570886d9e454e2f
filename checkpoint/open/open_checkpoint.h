#pragma once
// The reader of a checkpoint, by what lies in its folder: the one place that knows all formats.
//
//   const auto checkpoint = open_checkpoint("/models/flan-t5-small");

#include <memory>

#include "checkpoint/checkpoint_reader.h"

namespace quintet {

/// The checkpoint in a folder, by what lies there: checkpoint_<step> of a run of ours, or a Hugging Face
/// directory. Throws ExitCode::kData if it is neither, or damaged.
std::shared_ptr<const CheckpointReader> open_checkpoint(const std::filesystem::path& folder);

}  // namespace quintet
