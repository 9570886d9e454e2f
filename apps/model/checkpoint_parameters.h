#pragma once
// Reads arrays of a checkpoint into those of a model: shapes are compared, each rank reads its block.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/config/checkpoint_config.h"
#include "checkpoint/checkpoint_reader.h"
#include "runtime/tensor/parameters.h"

namespace quintet {

class Ranks;

/// Sizes of a rank's block, of the global array, and where in it the block begins.
std::vector<int64_t> shape_of(const View& view);
std::vector<int64_t> global_shape_of(const View& view);
std::vector<int64_t> origin_of(const View& view);
int64_t bytes_of(const View& view);

/// Reads this rank's block of tensor `name` into `to`, float32 from bfloat16 and float16 too; a message if it
/// does not fit, else empty.
std::string read_array(const CheckpointReader& from, const std::string& name, const View& to,
                       Device& device);
/// Throws kData listing all problems, if there are any, or at most `shown` and how many there are besides.
void fail_if_any(const std::vector<std::string>& problems, const std::string& where,
                 size_t shown = SIZE_MAX);

/// Throws kData listing the parameters that the checkpoint lacks or has in another shape.
void check_parameters(const CheckpointReader& checkpoint, const Parameters& parameters);
/// Parameters only, for evaluation and generation. Those that the checkpoint lacks are initialised from
/// `fallback_seed`, if there is one; gives their names. Throws kData listing all that do not fit.
std::vector<std::string> load_parameters(const CheckpointReader& checkpoint, Parameters& parameters,
                                         std::optional<int64_t> fallback_seed = {});

/// The checkpoint folders a configuration means, in order of step: one, or for mode 'all' every one.
/// Throws kData if there is none.
std::vector<std::filesystem::path> checkpoint_folders(const RestoreCheckpointConfig& config);
/// Those that the first rank sees, on all: a run that trains the model saves and deletes meanwhile. All ranks call it.
std::vector<std::filesystem::path> checkpoint_folders(const RestoreCheckpointConfig& config,
                                                      const Ranks& ranks);

}  // namespace quintet
