#pragma once
// Prints what gin files and flags come to: what `quintet config` runs.

#include <string>
#include <vector>

#include "apps/flags/result_format.h"
#include "runtime/gin/command_line.h"

namespace quintet {

struct ShowConfigOptions {
  ResultFormat format{"text"};  // text: gin
  bool parse_only = false, keep_macros = false, explain = false, diff = false;
};

/// Of a model directory its config.gin, of a Hugging Face directory its config.json, which is read as gin; else the path
/// itself.
std::string gin_file_of(const std::string& path);

/// On stdout; unknown names and missing includes on stderr. Throws usage errors of the configuration.
void show_config(const gin::CommandLine& command_line, const ShowConfigOptions& options);

/// Of every binding: which file and line or flag set it, what it replaced, whether anything uses it and why nothing
/// reads it. On stdout, what nothing uses last; the configuration need not be complete.
void explain_config(const gin::CommandLine& command_line, const ShowConfigOptions& options);

/// The names that the two gin files of `command_line` bind to different values, macros expanded, under its bindings, on
/// stdout.
void diff_config(const gin::CommandLine& command_line, const ShowConfigOptions& options);

}  // namespace quintet
