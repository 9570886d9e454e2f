#include "runtime/base/formats/tfrecord.h"

#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/formats/crc32c.h"

namespace quintet {
namespace {

constexpr size_t kHeaderBytes = 12, kFooterBytes = 4;

template <typename T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <typename T>
T read(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

}  // namespace

void append_tfrecord(std::string& out, std::string_view record) {
  const uint64_t length = record.size();
  out += bytes_of(length);
  out += bytes_of(masked_crc32c(crc32c(bytes_of(length))));
  out += record;
  out += bytes_of(masked_crc32c(crc32c(record)));
}

std::optional<std::string_view> next_tfrecord(std::string_view& rest, const std::string& where) {
  if (rest.empty()) return std::nullopt;
  QT_CHECK_AS(ExitCode::kData, rest.size() >= kHeaderBytes,
              "{}: ends within the header of a record ({} bytes left)", where, rest.size());
  const auto length = read<uint64_t>(rest, 0);
  QT_CHECK_AS(ExitCode::kData, read<uint32_t>(rest, 8) == masked_crc32c(crc32c(rest.substr(0, 8))),
              "{}: the length of a record has a wrong checksum; the file is damaged", where);
  QT_CHECK_AS(ExitCode::kData,
              rest.size() - kHeaderBytes >= kFooterBytes &&
                  length <= rest.size() - kHeaderBytes - kFooterBytes,
              "{}: ends within a record of {} bytes", where, length);
  const std::string_view record = rest.substr(kHeaderBytes, length);
  QT_CHECK_AS(ExitCode::kData,
              read<uint32_t>(rest, kHeaderBytes + length) == masked_crc32c(crc32c(record)),
              "{}: a record of {} bytes has a wrong checksum; the file is damaged", where, length);
  rest.remove_prefix(kHeaderBytes + length + kFooterBytes);
  return record;
}

}  // namespace quintet
