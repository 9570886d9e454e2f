#pragma once
// Whole files into memory: the one place that does it.
//
//   const std::string text = read_file("run.gin", ExitCode::kUsage, 64 << 20);

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/check.h"

namespace quintet {

inline constexpr int64_t kMostBytes = int64_t{1} << 30;  // of a pipe or device, which have no size

/// A file's bytes, of pipes and devices too. Throws `code` naming the file: the system's reason if
/// it cannot be opened or read to its end, both sizes if it holds more than `limit` bytes (of which
/// no more are read); without a limit an ordinary file may be of any size, others of kMostBytes.
std::string read_file(const std::filesystem::path& file, ExitCode code,
                      std::optional<int64_t> limit = {});

/// Throws ExitCode::kData if `bytes` are Git LFS's pointer, which a clone without git-lfs leaves in the
/// place of a large file.
void check_is_fetched(std::string_view bytes, const std::filesystem::path& file);

}  // namespace quintet
