#pragma once
// FNV-1a: a number for a text that is the same on every machine and in every version.
//
//   fnv1a<uint32_t>("decoder/layers_0/dropout")

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace quintet {

template <typename UInt>
constexpr UInt fnv1a(std::string_view text) {
  static_assert(std::is_same_v<UInt, uint32_t> || std::is_same_v<UInt, uint64_t>);
  constexpr bool kWide = sizeof(UInt) == 8;
  UInt hash = static_cast<UInt>(kWide ? 0xcbf29ce484222325u : 0x811c9dc5u);
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) *
           static_cast<UInt>(kWide ? 0x100000001b3u : 0x01000193u);
  return hash;
}

// The published values of "" and "foobar".
static_assert(fnv1a<uint32_t>("") == 0x811c9dc5 && fnv1a<uint32_t>("foobar") == 0xbf9cf968);
static_assert(fnv1a<uint64_t>("foobar") == 0x85944171f73967e8);

}  // namespace quintet
