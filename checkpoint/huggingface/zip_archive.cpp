#include "checkpoint/huggingface/zip_archive.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/check.h"

namespace quintet::huggingface {
namespace {

// Signatures and sizes of records: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 and 4.5.3.
constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                 kLocator64Bytes = 20;
constexpr size_t kMostComment = 65'535;
constexpr uint32_t kIn64 = 0xffffffff;
constexpr uint16_t kIn64Short = 0xffff, kExtra64 = 1;

}  // namespace

uint32_t crc32_of(std::span<const std::byte> bytes) {
  constexpr size_t kStep = size_t{1} << 30;  // zlib counts in 32 bits
  uLong crc = 0;
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(kStep, bytes.size())))
    crc = ::crc32(crc, reinterpret_cast<const Bytef*>(bytes.data()),
                  static_cast<uInt>(std::min(kStep, bytes.size())));
  return static_cast<uint32_t>(crc);
}

bool ZipArchive::is_one(std::span<const std::byte> bytes) {
  return bytes.size() >= 4 && std::memcmp(bytes.data(), &kLocal, 4) == 0;
}

template <typename T>
T ZipArchive::number(size_t at) const {
  QT_CHECK_AS(
      ExitCode::kData, at <= bytes_.size() && bytes_.size() - at >= sizeof(T),
      "{}: a zip record at byte {} ends outside of the file of {}; the file is cut short or "
      "damaged",
      where_, at, bytes_.size());
  T value;
  std::memcpy(&value, bytes_.data() + at, sizeof(T));
  return value;
}

ZipArchive::Directory ZipArchive::find_directory() const {
  size_t end = bytes_.size() < kEndBytes ? 0 : bytes_.size() - kEndBytes;
  const size_t least = end > kMostComment ? end - kMostComment : 0;
  while (end > least && number<uint32_t>(end) != kEnd) --end;
  QT_CHECK_AS(ExitCode::kData, bytes_.size() >= kEndBytes && number<uint32_t>(end) == kEnd,
              "{}: has no end of a zip archive; the file is cut short or damaged", where_);
  Directory directory{number<uint16_t>(end + 10), number<uint32_t>(end + 16),
                      number<uint32_t>(end + 12)};
  const bool in64 =
      directory.count == kIn64Short || directory.offset == kIn64 || directory.bytes == kIn64;
  if (!in64 || end < kLocator64Bytes || number<uint32_t>(end - kLocator64Bytes) != kLocator64)
    return directory;
  const auto at = number<uint64_t>(end - kLocator64Bytes + 8);
  QT_CHECK_AS(ExitCode::kData,
              bytes_.size() >= kEnd64Bytes && at <= bytes_.size() - kEnd64Bytes &&
                  number<uint32_t>(at) == kEnd64,
              "{}: has no zip64 directory at byte {}; the file is damaged", where_, at);
  return {number<uint64_t>(at + 32), number<uint64_t>(at + 48), number<uint64_t>(at + 40)};
}

ZipArchive::ZipArchive(std::span<const std::byte> bytes, std::string where)
    : bytes_(bytes), where_(std::move(where)) {
  const Directory directory = find_directory();
  QT_CHECK_AS(ExitCode::kData,
              directory.offset <= bytes_.size() &&
                  directory.bytes <= bytes_.size() - directory.offset &&
                  directory.count <= directory.bytes / kCentralBytes,
              "{}: its zip directory of {} entries at byte {} does not fit the file of {}", where_,
              directory.count, directory.offset, bytes_.size());
  auto at = static_cast<size_t>(directory.offset);
  for (uint64_t i = 0; i < directory.count; ++i) entries_.push_back(read_entry(at));
  std::sort(entries_.begin(), entries_.end(),
            [](const ZipEntry& a, const ZipEntry& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(entries_.begin(), entries_.end(),
                         [](const ZipEntry& a, const ZipEntry& b) { return a.name == b.name; });
  QT_CHECK_AS(ExitCode::kData, twice == entries_.end(), "{}: has the entry '{}' twice", where_,
              twice == entries_.end() ? "" : twice->name);
}

ZipEntry ZipArchive::read_entry(size_t& at) const {
  QT_CHECK_AS(ExitCode::kData, number<uint32_t>(at) == kCentral,
              "{}: expected a zip directory's entry at byte {}; the file is damaged", where_, at);
  const auto flags = number<uint16_t>(at + 8), method = number<uint16_t>(at + 10);
  const auto crc = number<uint32_t>(at + 16);
  uint64_t packed = number<uint32_t>(at + 20), size = number<uint32_t>(at + 24),
           local = number<uint32_t>(at + 42);
  const size_t name_bytes = number<uint16_t>(at + 28), extra_bytes = number<uint16_t>(at + 30),
               comment_bytes = number<uint16_t>(at + 32);
  const size_t after = at + kCentralBytes + name_bytes + extra_bytes + comment_bytes;
  QT_CHECK_AS(ExitCode::kData, after <= bytes_.size(),
              "{}: a zip directory's entry at byte {} ends outside of the file", where_, at);
  const std::string_view name(reinterpret_cast<const char*>(bytes_.data()) + at + kCentralBytes,
                              name_bytes);
  size_t extra = at + kCentralBytes + name_bytes;
  const size_t extra_end = extra + extra_bytes;
  while (extra + 4 <= extra_end) {
    const auto id = number<uint16_t>(extra), bytes = number<uint16_t>(extra + 2);
    size_t field = extra + 4;
    extra = field + bytes;
    if (id != kExtra64) continue;
    for (uint64_t* value : {&size, &packed, &local})
      if (*value == kIn64 && field + 8 <= std::min(extra, extra_end)) {
        *value = number<uint64_t>(field);
        field += 8;
      }
  }
  QT_CHECK_AS(ExitCode::kData, method == 0 && packed == size && (flags & 1) == 0,
              "{}: entry '{}' is compressed or encrypted; torch.save stores entries as they are",
              where_, name);
  QT_CHECK_AS(ExitCode::kData,
              local <= bytes_.size() && bytes_.size() - local >= kLocalBytes &&
                  number<uint32_t>(static_cast<size_t>(local)) == kLocal,
              "{}: entry '{}' has no header at byte {}; the file is damaged", where_, name, local);
  const auto header = static_cast<size_t>(local);
  const uint64_t data =
      local + kLocalBytes + number<uint16_t>(header + 26) + number<uint16_t>(header + 28);
  QT_CHECK_AS(ExitCode::kData, data <= bytes_.size() && size <= bytes_.size() - data,
              "{}: entry '{}' of {} bytes at byte {} ends outside of the file of {}", where_, name,
              size, data, bytes_.size());
  at = after;
  return {name, bytes_.subspan(static_cast<size_t>(data), static_cast<size_t>(size)), crc};
}

const ZipEntry* ZipArchive::find(std::string_view name) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const ZipEntry& entry, std::string_view n) { return entry.name < n; });
  return found == entries_.end() || found->name != name ? nullptr : &*found;
}

}  // namespace quintet::huggingface
