#pragma once
// Names and moves that make a checkpoint visible whole or not at all.
//
// A save lives in `.tmp-checkpoint_<step>` until it is synced and renamed; a deletion renames to
// `.trash-checkpoint_<step>` first. Whatever starts with these names is never read and is removed at
// the next start. Without the rename, 200 kills of a prototype left half-deleted checkpoints visible.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace quintet {

inline constexpr const char* kPinnedName = "PINNED";

/// The step of "checkpoint_<n>", n without sign or leading zeros.
std::optional<int64_t> step_of(const std::string& name);
/// Where a save of the step is prepared.
std::filesystem::path temporary_path(const std::filesystem::path& model_dir, int64_t step);
/// Makes a synced temporary folder visible; a checkpoint already there is exchanged in one move and
/// then deleted, its file PINNED taken over. Durable on return.
void publish(const std::filesystem::path& model_dir, int64_t step);
/// Deletes a visible checkpoint: gone from sight at once and for good, its files a little later.
void trash(const std::filesystem::path& model_dir, int64_t step);
/// Renames a damaged checkpoint to damaged-checkpoint_<step>, where no list finds it; returns the path.
std::filesystem::path set_aside(const std::filesystem::path& model_dir, int64_t step);
/// Removes what unfinished saves, deletions and replaced files left behind.
void remove_leftovers(const std::filesystem::path& model_dir);

}  // namespace quintet
