#pragma once
// One tensor of a checkpoint: its numbers on the terminal, as JSON, or as a NumPy file.

#include <string>

#include "apps/flags/result_format.h"

namespace quintet {

/// `output`: a .npy file to write, else it is printed: as text with the middle of a large one left out, as JSON
/// all of it. bfloat16, which NumPy lacks, is written as float32. Returns exit code 0. Throws a usage error with
/// the nearest name if there is no such tensor; kData for what is no checkpoint; kDisk.
int show_tensor(const std::string& path, const std::string& name, const ResultFormat& format,
                const std::string& output);

}  // namespace quintet
