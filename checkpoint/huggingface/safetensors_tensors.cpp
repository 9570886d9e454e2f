#include <cstring>

#include "checkpoint/huggingface/formats.h"
#include "checkpoint/safetensors.h"
#include "runtime/base/check.h"

namespace quintet::huggingface {
namespace {

/// Those that our writer leaves; the format has none of its own.
std::optional<Checksum> checksum_of(const SafetensorsHeader& header, const std::string& name,
                                    std::span<const std::byte> bytes) {
  const std::optional<uint32_t> crc = safetensors_crc(header, name);
  if (!crc) return std::nullopt;
  return Checksum{Checksum::Kind::crc32c, *crc, bytes};
}

}  // namespace

FileTensors safetensors_tensors(std::span<const std::byte> bytes, const std::string& where) {
  QT_CHECK_AS(ExitCode::kData, bytes.size() >= 8, "{}: {} bytes, too short for safetensors", where,
              bytes.size());
  uint64_t size = 0;
  std::memcpy(&size, bytes.data(), 8);
  QT_CHECK_AS(ExitCode::kData, size <= kMaxSafetensorsHeader && size <= bytes.size() - 8,
              "{}: header of {} bytes does not fit the file of {}; not safetensors or cut short",
              where, size, bytes.size());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, size);
  const auto data = bytes.subspan(8 + size);
  const SafetensorsHeader header =
      parse_safetensors_header(text, static_cast<int64_t>(data.size()), where);
  FileTensors tensors;
  for (const SafetensorsEntry& entry : header.entries) {
    const auto part = data.subspan(static_cast<size_t>(entry.begin),
                                   static_cast<size_t>(entry.end - entry.begin));
    FileTensor tensor = FileTensor::dense(entry.dtype, entry.shape, part);
    tensor.checksum = checksum_of(header, entry.name, part);
    tensors.emplace(entry.name, std::move(tensor));
  }
  return tensors;
}

}  // namespace quintet::huggingface
