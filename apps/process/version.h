#pragma once
// What was built: `quintet --version`, and run.json in a model directory.

#include <string>

namespace quintet {

extern const char* const kVersion;  // "0.1.0"
/// Of the `quintet` program alone: the source's commit, or "" (cmake/commit.cmake).
extern const char* const kCommit;
/// Version with the commit (may be empty) and whether CUDA is in the build; compiler and libraries: a few lines.
std::string version_text(const std::string& commit);

}  // namespace quintet
