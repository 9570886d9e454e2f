#pragma once
// Element types. bfloat16 is a storage type on the CPU: loaded, widened to float, computed, rounded.

#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace quintet {

/// IEEE float32 cut to 16 bits; conversion rounds to nearest even and keeps NaN a NaN.
struct bfloat16 {
  uint16_t bits = 0;
  bfloat16() = default;
  explicit bfloat16(float x) {
    const auto u = std::bit_cast<uint32_t>(x);
    bits = std::isnan(x) ? static_cast<uint16_t>((u >> 16) | 0x40u)
                         : static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

enum class DType : uint8_t { f32, bf16, f16, f64, i32, i64, u8, i8, u32, boolean };

/// Bytes of one element.
int64_t size_of(DType dtype);
/// NumPy's name: "float32", "bfloat16", ...
std::string_view name_of(DType dtype);
/// The inverse of name_of; throws a usage error that lists the known names.
DType dtype_from_name(std::string_view name);
bool is_floating(DType dtype);

template <typename T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::f32;
}
template <>
constexpr DType dtype_of<bfloat16>() {
  return DType::bf16;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::f64;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::i32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::i64;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::u8;
}
template <>
constexpr DType dtype_of<int8_t>() {
  return DType::i8;
}
template <>
constexpr DType dtype_of<uint32_t>() {
  return DType::u32;
}

}  // namespace quintet
