#pragma once
// Files that other programs may look at while we run: a reader sees the old bytes or the new ones,
// never a part, also after a crash or a power cut.
//
//   atomic_write_file(model_dir / "config.gin", text);
//
// Written beside the target, synced, renamed over it, folder synced.

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace quintet {

/// Replaces or creates `file` with `text`. Throws ExitCode::kDisk naming the path, the bytes needed
/// and the bytes free; the old file is then untouched and no temporary one is left.
void atomic_write_file(const std::filesystem::path& file, std::string_view text);

/// The same for contents made of many pieces, so that large files need no second copy.
void atomic_write_file(const std::filesystem::path& file,
                       std::span<const std::span<const std::byte>> pieces);

/// Throws ExitCode::kDisk where something else than a file is in the place of `file`, as renaming would put one in the place
/// of a device or a pipe. For files that are written after long work.
void check_replaceable(const std::filesystem::path& file);

/// Makes sure, before work that may take days, that files can be made in `folder`: writes, syncs,
/// renames and removes a small file `.writable-<owner>`. For one at a time of that name; what a killed
/// one left goes. Throws ExitCode::kDisk.
void check_writable(const std::filesystem::path& folder, const std::string& owner);

/// Removes what a run leaves in `folder` that was killed in the middle of one of these. For those only
/// who have the folder to themselves.
void remove_temporaries(const std::filesystem::path& folder);

}  // namespace quintet
