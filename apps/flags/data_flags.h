#pragma once
// T5X's flags about data, and ours, which stand for gin bindings: taken out of a command line before the
// rest is parsed.
//
//   --seqio_additional_cache_dirs=A,B   where offline caches are looked for
//   --tfds_data_dir=DIR                 where TFDS directories lie
//   --bad_records=fail|skip|skip:N      what to do about examples that cannot be read

#include <string>
#include <vector>

#include "apps/flags/command_line.h"
#include "runtime/gin/command_line.h"

namespace quintet {

/// gin::extract_command_line, and the data flags as bindings of what it gives.
gin::CommandLine extract_data_command_line(std::vector<std::string>& args);

/// What --gin_file is to the verbs that take a model.
inline constexpr const char* kGinFileOfModel =
    "what the model is, where its folder does not say it: binds MODEL";

/// So that --help shows them.
void describe_data_flags(CLI::App& app);
/// And those of gin; `gin_file`: what such a file is to the verb.
void describe_gin_flags(CLI::App& app, const std::string& gin_file);

}  // namespace quintet
