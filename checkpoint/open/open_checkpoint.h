#pragma once
// Checkpoints by what lies at a path, whichever program wrote them: the one place that everybody asks.
//
//   const auto checkpoint = open_checkpoint("/models/flan-t5-small");
//   const auto newest = open_checkpoint("/runs/small");   // the newest checkpoint_<step> in it

#include <filesystem>
#include <memory>

#include "checkpoint/checkpoint_reader.h"

namespace quintet {

/// The checkpoint that a path names: itself, or the newest checkpoint_<step> in it. Throws ExitCode::kData
/// saying what lies there if it is no checkpoint.
std::filesystem::path find_checkpoint(const std::filesystem::path& path);

/// Whether a folder may wait for its first checkpoint: it is empty, or a run's, and holds no model of any kind.
bool awaits_checkpoints(const std::filesystem::path& path);

/// Reads what find_checkpoint finds. Throws ExitCode::kData if its format cannot be read, or it is damaged.
/// Of a run with adapters, and of a PEFT directory that names its base by a path: merged into the base.
std::shared_ptr<const CheckpointReader> open_checkpoint(const std::filesystem::path& path);

/// The base with the adapter at a path merged in: a PEFT directory's, or that of a checkpoint of ours or of the newest
/// in a folder. Throws kData for what is no adapter, or one of another base.
std::shared_ptr<const CheckpointReader> adapted(std::shared_ptr<const CheckpointReader> base,
                                                const std::filesystem::path& adapter);

}  // namespace quintet
