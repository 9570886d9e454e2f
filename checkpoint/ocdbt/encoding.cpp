#include "checkpoint/ocdbt/encoding.h"

#include "runtime/base/check.h"
#include "runtime/base/formats/crc32c.h"

namespace quintet::ocdbt {
namespace {

constexpr uint64_t kLongestPath = 65535;

/// Whether a path stays below its folder, whatever the system makes of it. Empty: that of nothing at all.
bool stays_inside(const std::string& path) {
  if (path.starts_with('/') || path.find('\0') != std::string::npos) return false;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (path.compare(begin, end - begin, "..") == 0) return false;
    begin = end + 1;
  }
  return true;
}

std::vector<size_t> lengths(ByteReader& body, size_t count) {
  std::vector<size_t> result;
  // Each takes a byte at least: a count that the bytes cannot hold ends early.
  for (size_t i = 0; i < count; ++i) result.push_back(body.varint(kLongestPath));
  return result;
}

}  // namespace

Bytes open_body(std::span<const std::byte> encoded, uint32_t magic, size_t limit,
                const std::string& where) {
  ByteReader header(encoded, where);
  constexpr size_t kShortest = 4 + 8 + 1 + 1 + 4;
  if (encoded.size() < kShortest)
    header.refuse(fmt::format("{} bytes, expected at least {}", encoded.size(), kShortest));
  const uint32_t found = header.big_endian32();
  if (found != magic)
    header.refuse(fmt::format("begins with {:08x}, expected {:08x}", found, magic));
  const uint64_t length = header.u64();
  if (length != encoded.size())
    header.refuse(fmt::format("is of {} bytes and says {}", encoded.size(), length));
  ByteReader footer(encoded.last(4), where);
  const uint32_t stored = footer.u32(), crc = crc32c(encoded.first(encoded.size() - 4));
  QT_CHECK_AS(ExitCode::kData, stored == crc,
              "{}: is damaged: its CRC-32C is {:08x}, expected {:08x}", where, crc, stored);
  const uint64_t version = header.varint();
  QT_CHECK_AS(ExitCode::kData, version == 0, "{}: is of OCDBT's format version {}, only 0 is known",
              where, version);
  const uint64_t compression = header.varint();
  QT_CHECK_AS(ExitCode::kData, compression <= 1,
              "{}: is compressed in way {}, only none (0) and zstd (1) are known", where,
              compression);
  if (header.left() < 4) header.refuse("has no body");
  return decompress(compression == 1 ? Codec::zstd : Codec::none, header.take(header.left() - 4),
                    limit, where);
}

std::vector<DataFile> read_data_files(ByteReader& body, const std::string& base, size_t limit) {
  const uint64_t count = body.varint();
  std::vector<DataFile> files;
  if (count == 0) return files;
  std::vector<size_t> prefixes = lengths(body, count - 1);
  prefixes.insert(prefixes.begin(), 0);
  const std::vector<size_t> suffixes = lengths(body, count), bases = lengths(body, count);
  std::string path;
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) {
    if (prefixes[i] > path.size() || bases[i] > prefixes[i] + suffixes[i])
      body.refuse(fmt::format("data file {} has a path that is shorter than its parts", i));
    path.resize(prefixes[i]);
    path += body.text(suffixes[i]);
    files.push_back({base + path, base + path.substr(0, bases[i])});
    bytes += files.back().path.size() + files.back().base.size();
    if (files.back().path.size() > kLongestPath || bytes > limit)
      body.refuse("the paths of data files are longer than any store has them");
    if (!stays_inside(files.back().path))
      body.refuse(fmt::format("data file '{}' lies outside of the folder", files.back().path));
  }
  return files;
}

std::vector<Location> read_locations(ByteReader& body, const std::vector<DataFile>& files,
                                     size_t count) {
  std::vector<Location> result;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t file = body.varint();
    if (file >= files.size())
      body.refuse(fmt::format("refers to data file {} of {}", file, files.size()));
    result.push_back({.file = &files[file]});
  }
  for (Location& location : result) location.offset = body.varint();
  for (Location& location : result) location.length = body.varint();
  return result;
}

}  // namespace quintet::ocdbt
