#pragma once
// How a cache of generation keeps keys and values: as they are computed, or in 8 bits. The vector of one key head of
// one token, [head_dim], then has a scale of its own in float32, its largest magnitude / 127 (int8) or / 448 (fp8:
// float8, E4M3), and an element is its byte times that scale. A vector with an element that is not finite has the scale
// NaN: all of it reads back as NaN.

#include <cstdint>

#include "runtime/base/float8.h"

namespace quintet {

enum class CacheType : uint8_t { native, int8, fp8 };

constexpr const char* name_of(CacheType type) {
  return type == CacheType::int8 ? "int8" : type == CacheType::fp8 ? "fp8" : "native";
}
/// The largest number of a type in 8 bits.
constexpr float largest_of(CacheType type) {
  return type == CacheType::int8 ? 127.0f : float8::kLargest;
}
/// Below it the largest magnitude of a vector counts as this one, for scales that are normal numbers.
inline constexpr float kLeastCached = 1e-30f;

}  // namespace quintet
