#pragma once
// What every part of an OCDBT store is made of: a header, a body that may be compressed, a checksum; and in
// the body a table of the data files that it refers to. Source: TensorStore, kvstore/ocdbt/index.rst.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/bytes/byte_reader.h"
#include "checkpoint/bytes/decompress.h"

namespace quintet::ocdbt {

inline constexpr uint32_t kManifestMagic = 0x0cdb3a2a;
inline constexpr uint32_t kBtreeMagic = 0x0cdb20de;

/// The body. Throws ExitCode::kData naming `where`: another magic number, length, version, compression or
/// CRC-32C than belongs there, or a body of more than `limit` bytes.
Bytes open_body(std::span<const std::byte> encoded, uint32_t magic, size_t limit,
                const std::string& where);

/// A file that nodes and values lie in.
struct DataFile {
  std::string path;  // below the store's folder
  std::string base;  // the beginning of it, to which the paths in that file's own nodes are added
};

/// Bytes of a range in a data file.
struct Location {
  const DataFile* file = nullptr;  // in the table
  uint64_t offset = 0, length = 0;
  bool is_missing() const { return offset == UINT64_MAX && length == UINT64_MAX; }
};

/// Paths in it begin with `base`; `limit`: of the bytes of all paths together. Throws ExitCode::kData for
/// one that leads out of the folder.
std::vector<DataFile> read_data_files(ByteReader& body, const std::string& base, size_t limit);

/// So many locations, column by column.
std::vector<Location> read_locations(ByteReader& body, const std::vector<DataFile>& files,
                                     size_t count);

}  // namespace quintet::ocdbt
