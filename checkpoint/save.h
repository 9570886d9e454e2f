#pragma once
// One save: written beside, synced, renamed, the folder synced (docs/reference/faults.md, C1 to C4).

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace quintet {

/// Writes `checkpoint_<step>/` with the other hosts and returns the bytes of this host's file. On any
/// failure, here or on another host, throws and leaves nothing behind that was not there before.
///
/// Order: temporary folder; each host's data file, read back and compared, synced; host 0: state.h5,
/// manifest, sync of files and folder, rename, sync of the model directory.
int64_t write_checkpoint(const std::filesystem::path& model_dir, int64_t step,
                         const std::string& run_id, const std::vector<TensorSlice>& slices,
                         const std::string& state_json, HostGroup& hosts);

}  // namespace quintet
