#pragma once
// Reads and verifies the files of a native checkpoint by its manifest.

#include <filesystem>
#include <functional>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/finite.h"
#include "checkpoint/manifest.h"

namespace quintet {

/// Runs `work`, which reads the checkpoint in `folder`. If it throws and the folder is gone, the
/// run that owns it has deleted it meanwhile: throws ExitCode::kData that says so, and not that the
/// files which went are damage.
void reading(const std::filesystem::path& folder, const std::function<void()>& work);

/// Throws ExitCode::kData unless the folder holds exactly the manifest's files, each of its size, and
/// nothing else but MANIFEST.json and PINNED.
void check_files(const std::filesystem::path& folder, const Manifest& manifest);

/// Reads a data file just written, front to back, and returns its CRC-32C; throws ExitCode::kData if
/// a slice in it is not what it was in memory.
uint32_t read_back(const std::filesystem::path& file, const std::vector<TensorSlice>& slices,
                   const std::vector<ManifestSlice>& written);

/// Reads every file once, or every `parts`-th from number `part` on, front to back; throws
/// ExitCode::kData naming the first damaged tensor or file, but for what check_files finds. Needs no memory for the tensors. Gives
/// what in those files is not finite, which is no damage.
NotFinite verify_files(const std::filesystem::path& folder, const Manifest& manifest, int part = 0,
                       int parts = 1);

}  // namespace quintet
