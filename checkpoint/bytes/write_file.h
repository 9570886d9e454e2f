#pragma once
// Small files of a checkpoint that is being written.

#include <filesystem>
#include <span>
#include <string_view>

#include "runtime/base/files/posix_file.h"

namespace quintet {

/// A file that is not there yet; made durable by whoever writes the checkpoint. Throws kDisk.
inline void write_new_file(const std::filesystem::path& path, std::string_view text) {
  File file = File::create_new(path);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.close_checked();
}

}  // namespace quintet
