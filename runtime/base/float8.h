#pragma once
// Eight-bit floating point of the Open Compute Project (arXiv:2209.05433), storage types:
//
//             sign, exponent (bias), mantissa   largest   below        steps of   not finite
//   float8    1, 4 (7), 3                       448       2^-6         2^-9       NaN 0x7f, 0xff
//   float8_e5m2  1, 5 (15), 2                   57,344    2^-14        2^-16      infinities, NaN 0x7d to 0x7f

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace quintet {

namespace internal {

template <int kMantissaBits, int kBias>
struct Float8Format {
  static constexpr float kSmallestNormal =
      std::bit_cast<float>(static_cast<uint32_t>(127 + 1 - kBias) << 23);
  static constexpr int kDropped = 23 - kMantissaBits;  // bits of a float's mantissa

  /// Of the magnitude of a finite float that is not above the format's largest.
  static uint8_t rounded(float a) {
    if (a < kSmallestNormal)  // steps of one size; the most of them are the smallest normal number
      return static_cast<uint8_t>(
          std::nearbyint(a * (static_cast<float>(1 << kMantissaBits) / kSmallestNormal)));
    auto bits = std::bit_cast<uint32_t>(a);
    bits += (bits >> kDropped & 1) + (1u << (kDropped - 1)) - 1;
    return static_cast<uint8_t>((bits >> kDropped) -
                                (static_cast<uint32_t>(127 - kBias) << kMantissaBits));
  }
  static float widened(int magnitude) {
    if (magnitude >> kMantissaBits == 0)
      return static_cast<float>(magnitude) * (kSmallestNormal / (1 << kMantissaBits));
    return std::bit_cast<float>((static_cast<uint32_t>(magnitude) << kDropped) +
                                (static_cast<uint32_t>(127 - kBias) << 23));
  }
  /// Rounds to nearest even; what is too large becomes the largest, NaN 0x7f with its sign.
  static uint8_t saturated(float x, float largest) {
    const auto sign = static_cast<uint8_t>(std::signbit(x) ? 0x80 : 0);
    if (std::isnan(x)) return sign | 0x7f;
    return sign | rounded(std::min(std::fabs(x), largest));
  }
};

}  // namespace internal

/// E4M3.
struct float8 {
  static constexpr float kLargest = 448;
  uint8_t bits = 0;

  float8() = default;
  explicit float8(float x) : bits(internal::Float8Format<3, 7>::saturated(x, kLargest)) {}
  explicit operator float() const {
    const float a = (bits & 0x7f) == 0x7f ? std::numeric_limits<float>::quiet_NaN()
                                          : internal::Float8Format<3, 7>::widened(bits & 0x7f);
    return (bits & 0x80) != 0 ? -a : a;
  }
};

/// E5M2: the upper byte of IEEE binary16.
struct float8_e5m2 {
  static constexpr float kLargest = 57344;
  uint8_t bits = 0;

  float8_e5m2() = default;
  explicit float8_e5m2(float x) : bits(internal::Float8Format<2, 15>::saturated(x, kLargest)) {}
  explicit operator float() const {
    const int magnitude = bits & 0x7f;
    const float a = magnitude == 0x7c  ? std::numeric_limits<float>::infinity()
                    : magnitude > 0x7c ? std::numeric_limits<float>::quiet_NaN()
                                       : internal::Float8Format<2, 15>::widened(magnitude);
    return (bits & 0x80) != 0 ? -a : a;
  }
};

/// Which of them an operand of a product is.
enum class Float8 : uint8_t { e4m3, e5m2 };

constexpr float largest_of(Float8 format) {
  return format == Float8::e4m3 ? float8::kLargest : float8_e5m2::kLargest;
}
inline uint8_t narrowed(float x, Float8 format) {
  return format == Float8::e4m3 ? float8(x).bits : float8_e5m2(x).bits;
}
inline float widened(uint8_t bits, Float8 format) {
  if (format == Float8::e4m3) return static_cast<float>(std::bit_cast<float8>(bits));
  return static_cast<float>(std::bit_cast<float8_e5m2>(bits));
}

}  // namespace quintet
