#include "data/sources/array_record/riegeli.h"

#include <highwayhash/c_bindings.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "runtime/base/check.h"
#include "runtime/base/formats/varint.h"

namespace quintet::data {
namespace {

constexpr int64_t kBlockHeaderBytes = 24, kChunkHeaderBytes = 40;
constexpr int64_t kUsableBytes = kRiegeliBlockBytes - kBlockHeaderBytes;
constexpr uint64_t kMostDecodedBytes = uint64_t{1} << 31;
constexpr char kSignature = 's', kRecords = 'r', kTransposed = 't', kPadding = 'p';
constexpr char kUncompressed = 0, kZstd = 'z';
// Of array_record's writer.
constexpr int kZstdLevel = 3, kZstdWindowLog = 20;

uint64_t hash(std::string_view bytes) {
  // "Riegeli/records\n", twice.
  const HHKey key = {0x2f696c6567656952, 0x0a7364726f636572, 0x2f696c6567656952,
                     0x0a7364726f636572};
  return HighwayHash64(key, bytes.data(), bytes.size());
}

void append_u64(std::string& bytes, uint64_t value) {
  for (int byte = 0; byte < 8; ++byte) bytes += static_cast<char>(value >> 8 * byte);
}

uint64_t u64_at(std::string_view bytes, size_t at) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// What a chunk's header says.
struct ChunkHeader {
  uint64_t data_bytes, data_hash;
  char type;
  uint64_t num_records, decoded_bytes;

  std::string encoded() const {
    std::string rest;
    append_u64(rest, data_bytes);
    append_u64(rest, data_hash);
    append_u64(rest, num_records << 8 | static_cast<uint8_t>(type));
    append_u64(rest, decoded_bytes);
    std::string bytes;
    append_u64(bytes, hash(rest));
    return bytes + rest;
  }
};

/// Reads a file without its block headers.
class BlockReader {
 public:
  BlockReader(const InputFile& file, int64_t position) : file_(file), position_(position) {}
  std::string read(uint64_t bytes) {
    check_room(bytes);
    std::string out(bytes, 0);
    for (size_t done = 0; done < bytes;) {
      if (position_ % kRiegeliBlockBytes == 0) position_ += kBlockHeaderBytes;
      const int64_t part = std::min(static_cast<int64_t>(bytes - done),
                                    kRiegeliBlockBytes - position_ % kRiegeliBlockBytes);
      check_room(static_cast<uint64_t>(part));
      file_.read_exactly(out.data() + done, static_cast<size_t>(part), position_);
      done += static_cast<size_t>(part);
      position_ += part;
    }
    return out;
  }

 private:
  void check_room(uint64_t bytes) const {
    QT_CHECK_AS(
        ExitCode::kData,
        position_ <= file_.size() && bytes <= static_cast<uint64_t>(file_.size() - position_),
        "the file ends within it");
  }
  const InputFile& file_;
  int64_t position_;
};

uint64_t take_varint(std::string_view& rest) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(rest.front());
    rest.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  fail(ExitCode::kData, "a number in it is malformed");
}

/// A buffer of a chunk, which holds at most `most` bytes.
std::string decompressed(char compression, std::string_view bytes, uint64_t most) {
  if (compression == kUncompressed) return std::string(bytes);
  QT_CHECK_AS(
      ExitCode::kData, compression == kZstd,
      "its compression is '{}', only zstd and none are read; write the file with the option "
      "'zstd'",
      compression);
  const uint64_t size = take_varint(bytes);
  QT_CHECK_AS(ExitCode::kData, size <= most, "it says to hold {} bytes, expected at most {}", size,
              most);
  std::string out(size, 0);
  const size_t got = ZSTD_decompress(out.data(), out.size(), bytes.data(), bytes.size());
  QT_CHECK_AS(ExitCode::kData, got == size, "damaged zstd data: {}",
              ZSTD_isError(got) ? ZSTD_getErrorName(got) : "too short");
  return out;
}

std::string compressed(std::string_view bytes) {
  std::string out;
  append_varint(out, bytes.size());
  const size_t begin = out.size();
  out.resize(begin + ZSTD_compressBound(bytes.size()));
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(),
                                                                     ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kZstdLevel);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_windowLog, kZstdWindowLog);
  const size_t got = ZSTD_compress2(context.get(), out.data() + begin, out.size() - begin,
                                    bytes.data(), bytes.size());
  QT_ASSERT(!ZSTD_isError(got));
  out.resize(begin + got);
  return out;
}

RiegeliRecords decoded(const ChunkHeader& header, std::string_view data) {
  QT_CHECK_AS(ExitCode::kData, !data.empty(), "it has no data");
  const char compression = data.front();
  data.remove_prefix(1);
  const uint64_t sizes_bytes = take_varint(data);
  QT_CHECK_AS(ExitCode::kData, sizes_bytes <= data.size(),
              "the sizes of its records are cut short");
  constexpr uint64_t kVarintBytes = 10;
  const std::string sizes =
      decompressed(compression, data.substr(0, sizes_bytes), header.num_records * kVarintBytes);
  RiegeliRecords records{decompressed(compression, data.substr(sizes_bytes), header.decoded_bytes),
                         {}};
  uint64_t end = 0;
  for (std::string_view rest = sizes; !rest.empty();) {
    const uint64_t size = take_varint(rest);
    QT_CHECK_AS(ExitCode::kData, size <= records.bytes.size() - end,
                "its records are longer than its data");
    records.ends.push_back(end += size);
  }
  QT_CHECK_AS(ExitCode::kData,
              records.size() == header.num_records && end == records.bytes.size() &&
                  end == header.decoded_bytes,
              "it holds {} records of {} bytes, its header says {} of {}", records.size(),
              records.bytes.size(), header.num_records, header.decoded_bytes);
  return records;
}

ChunkHeader read_header(BlockReader& blocks) {
  const std::string bytes = blocks.read(kChunkHeaderBytes);
  QT_CHECK_AS(ExitCode::kData, u64_at(bytes, 0) == hash(std::string_view(bytes).substr(8)),
              "the checksum of its header is wrong");
  const uint64_t kind = u64_at(bytes, 24);
  return {.data_bytes = u64_at(bytes, 8),
          .data_hash = u64_at(bytes, 16),
          .type = static_cast<char>(kind & 0xff),
          .num_records = kind >> 8,
          .decoded_bytes = u64_at(bytes, 32)};
}

RiegeliRecords read_chunk(const InputFile& file, int64_t begin) {
  BlockReader blocks(file, begin);
  const ChunkHeader header = read_header(blocks);
  QT_CHECK_AS(ExitCode::kData, header.type != kTransposed,
              "it is transposed, which is not read; write the file without the option 'transpose'");
  QT_CHECK_AS(ExitCode::kData, header.type == kRecords, "its type is {}, expected records (r)",
              header.type);
  QT_CHECK_AS(ExitCode::kData,
              header.decoded_bytes <= kMostDecodedBytes && header.num_records <= kMostDecodedBytes,
              "it holds {} records of {} bytes, above {}", header.num_records, header.decoded_bytes,
              kMostDecodedBytes);
  const std::string data = blocks.read(header.data_bytes);
  QT_CHECK_AS(ExitCode::kData, header.data_hash == hash(data), "the checksum of its data is wrong");
  return decoded(header, data);
}

/// The end of a chunk, block headers included, with so many bytes and records.
int64_t end_of_chunk(int64_t begin, int64_t bytes, int64_t num_records) {
  const int64_t headers = (bytes + (begin + kUsableBytes - 1) % kRiegeliBlockBytes) / kUsableBytes;
  // Records have numbers between begin and end; no chunk ends in a block's header or just behind it.
  const int64_t numbers = begin + num_records;
  const int64_t left =
      kRiegeliBlockBytes - 1 - (numbers + kRiegeliBlockBytes - 1) % kRiegeliBlockBytes;
  return std::max(begin + bytes + headers * kBlockHeaderBytes,
                  numbers + std::max<int64_t>(0, left - (kUsableBytes - 1)));
}

std::string block_header(int64_t chunk_begin, int64_t chunk_end, int64_t at) {
  std::string rest;
  append_u64(rest, static_cast<uint64_t>(at - chunk_begin));
  append_u64(rest, static_cast<uint64_t>(chunk_end - at));
  std::string bytes;
  append_u64(bytes, hash(rest));
  return bytes + rest;
}

}  // namespace

bool is_riegeli(const InputFile& file) {
  if (file.size() < kBlockHeaderBytes + kChunkHeaderBytes) return false;
  BlockReader blocks(file, 0);
  const std::string header = blocks.read(kChunkHeaderBytes);
  return header == ChunkHeader{0, hash(""), kSignature, 0, 0}.encoded();
}

RiegeliRecords read_riegeli_records(const InputFile& file, int64_t begin) {
  try {
    return read_chunk(file, begin);
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("{}: chunk at byte {}: {}", file.path(), begin, error.what()));
  }
}

RiegeliWriter::RiegeliWriter(const std::filesystem::path& path) : file_(File::create_new(path)) {
  write_chunk(kSignature, 0, 0, "");
}

int64_t RiegeliWriter::add(std::span<const std::string> records) {
  std::string sizes, values;
  for (const std::string& record : records) {
    append_varint(sizes, record.size());
    values += record;
  }
  const std::string of_sizes = compressed(sizes);
  std::string data(1, kZstd);
  append_varint(data, of_sizes.size());
  data += of_sizes;
  data += compressed(values);
  const int64_t begin = position_;
  write_chunk(kRecords, records.size(), values.size(), data);
  return begin;
}

void RiegeliWriter::pad() {
  int64_t left = kRiegeliBlockBytes - position_ % kRiegeliBlockBytes;
  if (left == kRiegeliBlockBytes) return;
  if (left < kChunkHeaderBytes) left += kUsableBytes;
  write_chunk(kPadding, 0, 0, std::string(static_cast<size_t>(left - kChunkHeaderBytes), 0));
}

void RiegeliWriter::close() {
  file_.sync();
  file_.close_checked();
}

void RiegeliWriter::write_chunk(char type, uint64_t num_records, uint64_t decoded_bytes,
                                std::string_view data) {
  std::string logical =
      ChunkHeader{data.size(), hash(data), type, num_records, decoded_bytes}.encoded();
  logical += data;
  const int64_t begin = position_;
  const int64_t end = end_of_chunk(begin, std::ssize(logical), static_cast<int64_t>(num_records));
  std::string bytes;
  size_t taken = 0;
  while (begin + std::ssize(bytes) < end) {
    const int64_t at = begin + std::ssize(bytes);
    if (at % kRiegeliBlockBytes == 0) {
      bytes += block_header(begin, end, at);
      continue;
    }
    const auto room =
        static_cast<size_t>(std::min(end - at, kRiegeliBlockBytes - at % kRiegeliBlockBytes));
    const std::string_view part = std::string_view(logical).substr(taken, room);
    bytes += part;
    taken += part.size();
    bytes.append(room - part.size(), 0);  // padding
  }
  file_.write_at(begin, std::as_bytes(std::span(bytes)));
  position_ = end;
}

}  // namespace quintet::data
