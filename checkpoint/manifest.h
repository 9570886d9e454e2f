#pragma once
// MANIFEST.json of a native checkpoint: what there is, where its bytes lie, and how to tell that they
// are still the same. It is written last and carries a CRC-32C of itself in its final member.
//
// A tensor is tiled by slices; a slice lies in one data file as extents of raw little-endian elements
// in row-major order (the chunks of its HDF5 dataset), so that reading needs no HDF5 library and every
// number in the manifest is checked against the file's size before anything is allocated.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"

namespace quintet {

inline constexpr int64_t kCheckpointVersion = 1;
inline constexpr const char* kManifestName = "MANIFEST.json";
inline constexpr const char* kStateName = "state.h5";

struct Extent {
  int64_t offset = 0, bytes = 0;
};

struct ManifestSlice {
  size_t file = 0;      // index into Manifest::files
  std::string dataset;  // its name in the HDF5 file
  std::vector<int64_t> origin, sizes;
  uint32_t crc = 0;             // CRC-32C of the slice's elements, row-major
  std::vector<Extent> extents;  // in the slice's order
};

struct ManifestTensor {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<ManifestSlice> slices;
};

struct ManifestFile {
  std::string name;
  int64_t bytes = 0;
  uint32_t crc = 0;  // CRC-32C of the whole file
};

struct Manifest {
  int64_t step = 0;
  std::string run_id;
  int64_t hosts = 1;
  std::vector<ManifestFile> files;
  std::map<std::string, ManifestTensor> tensors;
  std::string state_json = "{}";
};

/// Bytes of a block; throws ExitCode::kData naming `what` if negative or beyond 2^63.
int64_t checked_bytes(DType dtype, const std::vector<int64_t>& sizes, const std::string& what);
/// Throws ExitCode::kUsage unless the name is path components joined by '/', none empty, '.' or '..'.
void check_tensor_name(const std::string& name);
/// "data-00003-of-00008.h5".
std::string data_file_name(int64_t host, int64_t hosts);

/// The file's text. Throws ExitCode::kUsage if state_json is not a JSON object.
std::string manifest_text(const Manifest& manifest);
/// Parses and validates everything that does not need the other files: throws ExitCode::kData naming
/// `where` on any change to the text, an unknown version, names of files that are not ours, slices
/// that overlap or leave holes in their tensors, extents outside their file or over each other.
Manifest parse_manifest(const std::string& text, const std::string& where);
/// folder/MANIFEST.json; checks that the folder's name, if `checkpoint_<n>`, has the same step.
Manifest read_manifest(const std::filesystem::path& folder);

/// A good manifest, or a host's share of one, as few bytes for hosts of the same program; and back.
std::string packed(const Manifest& manifest);
Manifest unpacked(std::string_view bytes);

/// Adds the files and slices of other hosts' shares, in a time that grows with those alone.
void merge_part(Manifest& whole, Manifest part);

}  // namespace quintet
