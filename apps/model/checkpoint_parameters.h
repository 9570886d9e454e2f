#pragma once
// Reads arrays of a checkpoint into those of a model: shapes are compared, each rank reads its block.

#include <filesystem>
#include <string>
#include <vector>

#include "apps/config/checkpoint_config.h"
#include "checkpoint/checkpoint_reader.h"
#include "runtime/tensor/parameters.h"

namespace quintet {

/// Sizes of a rank's block, of the whole array, and where in it the block begins.
std::vector<int64_t> shape_of(const View& view);
std::vector<int64_t> whole_shape_of(const View& view);
std::vector<int64_t> origin_of(const View& view);
int64_t bytes_of(const View& view);

/// Reads this rank's block of `source` into `to`, float32 from bfloat16 too; a message naming `name`
/// if it does not fit, else empty.
std::string read_array(const CheckpointReader& from, const std::string& source,
                       const std::string& name, const View& to, Device& device);
/// Throws kData listing the problems, if there are any.
void fail_if_any(const std::vector<std::string>& problems, const std::string& where);

/// Throws kData listing the parameters that the checkpoint lacks or has in another shape.
void check_parameters(const CheckpointReader& checkpoint, const Parameters& parameters);
/// Parameters only, for evaluation and generation. Throws kData listing all that do not fit.
void load_parameters(const CheckpointReader& checkpoint, Parameters& parameters);

/// The checkpoint folders a configuration means, in order of step: one, or for mode 'all' every one.
/// Throws kData if there is none.
std::vector<std::filesystem::path> checkpoint_folders(const RestoreCheckpointConfig& config);

}  // namespace quintet
