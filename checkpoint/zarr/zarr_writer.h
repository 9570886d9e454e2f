#pragma once
// Writes an array as a folder of zarr's format 2, in chunks compressed with gzip as TensorStore does for
// T5X.
//
//   write_zarr(folder / "target.x", {.dtype = DType::f32, .shape = {4, 8}, .chunks = {4, 8}}, bytes);

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"

namespace quintet {

struct ZarrLayout {
  DType dtype = DType::f32;
  std::vector<int64_t> shape, chunks;
};

/// Chunks of at most `most_bytes` that are contiguous in the array: the first axes are divided, by divisors of
/// their size where these are not much too small, else with a last chunk that reaches over the edge.
std::vector<int64_t> zarr_chunks(const std::vector<int64_t>& shape, DType dtype,
                                 int64_t most_bytes);
/// The text of .zarray.
std::string zarr_metadata(const ZarrLayout& layout);
/// Makes the folder and writes metadata and chunks, several at a time; numbers that gzip hardly makes smaller are
/// stored in it as they are. Not durable yet: sync_file_system().
/// Throws ExitCode::kDisk.
void write_zarr(const std::filesystem::path& folder, const ZarrLayout& layout,
                std::span<const std::byte> bytes);

}  // namespace quintet
