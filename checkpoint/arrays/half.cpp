#include "checkpoint/arrays/half.h"

#include <bit>

namespace quintet {

float float_from_half(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  // The exponent moves from a bias of 15 to one of 127; multiplying does so for subnormal numbers, too.
  constexpr uint32_t kInfinite = 0x7c00u;
  if (magnitude >= kInfinite)
    return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

HostArray as_float32(HostArray array) {
  if (array.dtype == DType::f32) return array;
  HostArray floats(DType::f32, array.shape);
  const auto to = floats.as<float>();
  if (array.dtype == DType::bf16) {
    const auto from = array.as<bfloat16>();
    for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(from[i]);
    return floats;
  }
  QT_ASSERT(array.dtype == DType::f16);
  const auto* from = reinterpret_cast<const uint16_t*>(array.bytes.data());
  for (size_t i = 0; i < to.size(); ++i) to[i] = float_from_half(from[i]);
  return floats;
}

HostArray rounded(HostArray array, DType dtype) {
  QT_ASSERT(array.dtype == DType::f32);
  if (dtype == DType::f32) return array;
  HostArray out(dtype, array.shape);
  const auto from = array.as<float>();
  if (dtype == DType::bf16) {
    const auto to = out.as<bfloat16>();
    for (size_t i = 0; i < to.size(); ++i) to[i] = bfloat16(from[i]);
    return out;
  }
  QT_ASSERT(dtype == DType::f16);
  auto* to = reinterpret_cast<_Float16*>(out.bytes.data());
  for (size_t i = 0; i < from.size(); ++i) to[i] = static_cast<_Float16>(from[i]);
  return out;
}

}  // namespace quintet
