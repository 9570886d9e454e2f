#pragma once
// Chunks of records in a Riegeli file, the form below ArrayRecord. Blocks of 64 KiB begin with a header that says
// where the chunk at hand begins and ends; a chunk has a header with HighwayHash checksums, and is compressed as a
// whole. Source: riegeli's specification of its records file format.
//
//   RiegeliWriter writer("a.array_record");
//   const int64_t begin = writer.add(records);
//   writer.close();
//   const RiegeliRecords records = read_riegeli_records(InputFile("a.array_record"), begin);

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/sources/input_file.h"
#include "runtime/base/files/posix_file.h"

namespace quintet::data {

inline constexpr int64_t kRiegeliBlockBytes = int64_t{1} << 16;

/// The records of a chunk.
struct RiegeliRecords {
  std::string bytes;         // one after the other
  std::vector<size_t> ends;  // in `bytes`
  size_t size() const { return ends.size(); }
  std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::string_view(bytes).substr(begin, ends[i] - begin);
  }
};

/// Whether a file begins as a Riegeli file does.
bool is_riegeli(const InputFile& file);

/// The chunk that begins at a byte. Throws kData naming file and byte: no chunk of records, wrong checksums, cut short,
/// transposed, compressed by something else than zstd, above 2 GiB.
RiegeliRecords read_riegeli_records(const InputFile& file, int64_t begin);

class RiegeliWriter {
 public:
  /// Throws kDisk, as all of it does.
  explicit RiegeliWriter(const std::filesystem::path& path);
  /// Writes a chunk, compressed by zstd; its first byte's place.
  int64_t add(std::span<const std::string> records);
  /// Fills the block at hand.
  void pad();
  /// Syncs.
  void close();

 private:
  void write_chunk(char type, uint64_t num_records, uint64_t decoded_bytes, std::string_view data);
  File file_;
  int64_t position_ = 0;
};

}  // namespace quintet::data
