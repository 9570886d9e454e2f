#pragma once
// What was built: `quintet --version`, and run.json in a model directory.

#include <string>

namespace quintet {

extern const char* const kVersion;  // "0.1.0"
/// Version, compiler, libraries and whether CUDA is in the build, on a few lines.
std::string version_text();

}  // namespace quintet
