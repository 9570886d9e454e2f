#pragma once
// The safetensors file format: eight bytes of header length, a JSON header, then raw tensors.
// Source: huggingface/safetensors, format 0.5. Parsing validates everything before it allocates.
//
//   write_safetensors("out.safetensors", arrays, {{"format", "quintet"}});
//   const HostArrays arrays = read_safetensors("out.safetensors");
//
// The format has no checksums. Ours lie in __metadata__, where other readers ignore them: a member
// "crc32c:<tensor>" for each tensor and "crc32c" for the header itself (taken with these eight digits
// as zeros). Where they are, reading checks them.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/host_array.h"

namespace quintet {

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsFile {
  HostArrays arrays;
  SafetensorsMetadata metadata;  // without the checksums
};

/// All tensors of a file. Throws ExitCode::kData naming the file and the tensor if the header is not
/// valid, a tensor's bytes do not match its shape or its CRC, or tensors overlap, leave holes or pass
/// the end.
HostArrays read_safetensors(const std::filesystem::path& file);
SafetensorsFile read_safetensors_file(const std::filesystem::path& file);

/// Replaces or creates the file in one move (runtime/base/files/atomic_file.h), with checksums.
void write_safetensors(const std::filesystem::path& file, const HostArrays& arrays,
                       const SafetensorsMetadata& metadata = {});

/// One tensor's line in the header.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // in the data after the header
};
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their data
  SafetensorsMetadata metadata;           // all of it
};
/// The largest that is read.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

/// Validates a header against the number of bytes that follow it.
SafetensorsHeader parse_safetensors_header(std::string_view json, int64_t data_bytes,
                                           const std::string& where);

/// Throws ExitCode::kData naming the file if the header's text is not what its own checksum says; one without is from
/// another program.
void check_safetensors_header(std::string text, const SafetensorsHeader& header,
                              const std::filesystem::path& file);
/// A tensor's checksum; none: there is none, or it is no number.
std::optional<uint32_t> safetensors_crc(const SafetensorsHeader& header, const std::string& tensor);

/// The header of a file with these tensors, which get their order and places: wider elements first, so
/// that all are aligned. Checksums are zeros in it. Throws ExitCode::kUsage naming `where` for names
/// that cannot be.
std::string make_safetensors_header(std::vector<SafetensorsEntry>& tensors,
                                    SafetensorsMetadata metadata, const std::string& where);
/// Where the tensors' checksums, eight hexadecimal digits each, stand in such a header.
std::map<std::string, size_t> safetensors_crc_places(std::string_view header,
                                                     const std::vector<SafetensorsEntry>& tensors);
/// Writes the header's checksum of itself into it, once the others are there.
void sign_safetensors_header(std::string& header);

}  // namespace quintet
