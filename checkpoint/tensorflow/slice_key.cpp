#include "checkpoint/tensorflow/slice_key.h"

namespace quintet::tensorflow {
namespace {

/// The number of bytes, and these from the highest on.
void add_unsigned(std::string& key, uint64_t value) {
  std::string bytes;
  for (; value > 0; value >>= 8) bytes.insert(bytes.begin(), static_cast<char>(value & 0xff));
  key += static_cast<char>(bytes.size());
  key += bytes;
}

/// The sign and a number of ones that says how many bytes there are, then the value from the highest bit on.
/// Negative numbers are the complements of the others.
void add_signed(std::string& key, int64_t value) {
  const uint64_t magnitude = static_cast<uint64_t>(value < 0 ? ~value : value);
  size_t length = 1;  // of which each byte has seven bits, and one of all is the sign
  while (length < 10 && (7 * length - 1) < 64 && magnitude >> (7 * length - 1) != 0) ++length;
  std::string bytes(10, value < 0 ? '\xff' : '\0');
  for (size_t i = 0; i < 8; ++i)
    bytes[2 + i] = static_cast<char>(static_cast<uint64_t>(value) >> (8 * (7 - i)) & 0xff);
  bytes = bytes.substr(10 - length);
  const uint32_t header = (0xffffu << (16 - length)) & 0xffffu;  // ones, one for each byte
  bytes[0] = static_cast<char>(bytes[0] ^ static_cast<char>(header >> 8));
  if (length >= 2) bytes[1] = static_cast<char>(bytes[1] ^ static_cast<char>(header & 0xff));
  key += bytes;
}

/// Zero and 255 are followed by the other, so that the end, a zero and a one, is neither.
void add_text(std::string& key, std::string_view text) {
  for (const char c : text) {
    key += c;
    if (c == '\0') key += '\xff';
    if (c == '\xff') key += '\0';
  }
  key += '\0';
  key += '\x01';
}

}  // namespace

std::string slice_key(std::string_view name, const std::vector<int64_t>& starts,
                      const std::vector<int64_t>& lengths) {
  std::string key;
  add_unsigned(key, 0);
  add_text(key, name);
  add_unsigned(key, starts.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    add_signed(key, starts[i]);
    add_signed(key, lengths[i]);
  }
  return key;
}

}  // namespace quintet::tensorflow
