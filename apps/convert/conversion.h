#pragma once
// A model from one checkpoint format to another, in a folder that appears whole or not at all.
//
//   convert_model({.source = "flan-t5-small", .destination = "/tmp/small", .format = "native"}, {});

#include <optional>
#include <string>

#include "apps/flags/result_format.h"
#include "apps/process/ranks.h"
#include "runtime/base/dtype.h"
#include "runtime/gin/command_line.h"

namespace CLI {
class App;
}

namespace quintet {

struct ConversionFlags {
  std::string source, destination, adapter, format, dtype, shard_size;
  std::optional<int> scan_axis;
  bool check = false;
  ResultFormat results;
  RankFlags ranks;

  void add_to(CLI::App& app);
  bool requested() const { return !format.empty(); }
  /// Throws a usage error for flags that do not go together; `quantizes`: whether there are such flags, too.
  void check_with(bool quantizes) const;
  /// float32, bfloat16 or float16; none: as the source has them.
  std::optional<DType> weights() const;
};

/// Bytes of "5GB", "500MB", "2GiB" or a plain number. Throws a usage error naming the flag.
int64_t bytes_of_size(const std::string& flag, const std::string& text);

/// Writes the model; ranks of one job share the work. `gin_line`: bindings over the source's
/// configuration, or files that say what its model is where its folder does not. Throws a usage error for
/// a model that the format has no place for, ExitCode::kData for a damaged source, ExitCode::kDisk for
/// what cannot be written; nothing is left at the destination then.
void convert_model(const ConversionFlags& flags, const gin::CommandLine& gin_line);

}  // namespace quintet
