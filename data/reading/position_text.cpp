#include "data/reading/position_text.h"

#include "data/examples/base64.h"
#include "runtime/base/check.h"
#include "runtime/base/formats/varint.h"

namespace quintet::data {
namespace {

[[noreturn]] void damaged(std::string_view text) {
  fail(ExitCode::kData, "data position: '{}' is damaged", text.substr(0, 80));
}

}  // namespace

std::string position_text(const Position& position) {
  std::string bytes;
  for (const int64_t value : position)
    append_varint(bytes, static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
  return base64(bytes);
}

Position position_from_text(std::string_view text) {
  Position position;
  uint64_t value = 0;
  int shift = 0;
  const std::optional<std::string> bytes = from_base64(text);
  if (!bytes) damaged(text);
  for (const char c : *bytes) {
    if (shift > 63) damaged(text);
    value |= static_cast<uint64_t>(c & 127) << shift;
    shift += 7;
    if (c & 128) continue;
    position.push_back(static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1));
    value = 0;
    shift = 0;
  }
  if (shift != 0) damaged(text);
  return position;
}

}  // namespace quintet::data
