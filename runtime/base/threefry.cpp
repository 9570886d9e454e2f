#include "runtime/base/threefry.h"

#include <array>
#include <string>

#include "runtime/base/check.h"

namespace quintet {
namespace {

/// One 64-byte block of SHA-1 (FIPS 180-4, section 6.1.2).
void sha1_block(std::array<uint32_t, 5>& state, const unsigned char* bytes) {
  std::array<uint32_t, 80> w;
  for (size_t t = 0; t < 16; ++t)
    w[t] = static_cast<uint32_t>(bytes[4 * t] << 24 | bytes[4 * t + 1] << 16 |
                                 bytes[4 * t + 2] << 8 | bytes[4 * t + 3]);
  for (size_t t = 16; t < 80; ++t) w[t] = std::rotl(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
  auto [a, b, c, d, e] = state;
  for (size_t t = 0; t < 80; ++t) {
    uint32_t f, k;
    if (t < 20) {
      f = (b & c) | (~b & d), k = 0x5a827999u;
    } else if (t < 40) {
      f = b ^ c ^ d, k = 0x6ed9eba1u;
    } else if (t < 60) {
      f = (b & c) | (b & d) | (c & d), k = 0x8f1bbcdcu;
    } else {
      f = b ^ c ^ d, k = 0xca62c1d6u;
    }
    const uint32_t next = std::rotl(a, 5) + f + e + k + w[t];
    e = d, d = c, c = std::rotl(b, 30), b = a, a = next;
  }
  state = {state[0] + a, state[1] + b, state[2] + c, state[3] + d, state[4] + e};
}

/// The first four bytes of SHA-1(text), big-endian.
uint32_t sha1_prefix(std::string text) {
  const uint64_t bits = 8 * text.size();
  text.push_back(static_cast<char>(0x80));
  while (text.size() % 64 != 56) text.push_back('\0');
  for (int shift = 56; shift >= 0; shift -= 8) text.push_back(static_cast<char>(bits >> shift));
  std::array<uint32_t, 5> state{0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u, 0xc3d2e1f0u};
  for (size_t at = 0; at < text.size(); at += 64)
    sha1_block(state, reinterpret_cast<const unsigned char*>(text.data()) + at);
  return state[0];
}

}  // namespace

std::vector<Key> split(Key key, int64_t n) {
  QT_ASSERT(n >= 0);
  std::vector<Key> keys(static_cast<size_t>(n));
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = split_at(key, i);
  return keys;
}

uint32_t hash_of_path(std::string_view module_path, uint32_t count) {
  std::string text(module_path);
  std::erase(text, '/');
  // Flax writes the count as the shortest big-endian integer.
  for (int shift = 24; shift >= 0; shift -= 8)
    if (count >> shift != 0) text.push_back(static_cast<char>(count >> shift));
  return sha1_prefix(std::move(text));
}

Key fold_in_path(Key root, std::span<const std::string_view> module_path, uint32_t count) {
  std::string text;
  for (std::string_view name : module_path) text += name;
  return fold_in(root, hash_of_path(text, count));
}

Key key_of_parameter(Key root, std::string_view parameter_path, uint32_t count) {
  std::vector<std::string_view> names;
  for (size_t slash; (slash = parameter_path.find('/')) != std::string_view::npos;
       parameter_path.remove_prefix(slash + 1))
    names.push_back(parameter_path.substr(0, slash));
  return fold_in_path(root, names, count);
}

}  // namespace quintet
