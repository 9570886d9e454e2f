#pragma once
// Eight-bit floating point E4M3 of the Open Compute Project (arXiv:2209.05433), a storage type: sign,
// 4 bits of exponent (bias 7), 3 of mantissa, no infinities. Largest magnitude 448, steps of 2^-9 below
// 2^-6; 0x7f and 0xff are NaN.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace quintet {

struct float8 {
  static constexpr float kLargest = 448;
  uint8_t bits = 0;

  float8() = default;
  /// Rounds to nearest even; what is too large becomes the largest, NaN stays NaN.
  explicit float8(float x) {
    const auto sign = static_cast<uint8_t>(std::signbit(x) ? 0x80 : 0);
    if (std::isnan(x)) {
      bits = sign | 0x7f;
      return;
    }
    const float a = std::min(std::fabs(x), kLargest);
    const int exponent = a < 0x1p-6f ? -6 : std::ilogb(a);
    // 8 to 16 steps of the mantissa, fewer below 2^-6: 16 is 8 of the next exponent, as in the bits.
    const auto steps = static_cast<int>(std::nearbyint(std::ldexp(a, 3 - exponent)));
    bits = static_cast<uint8_t>(sign | (8 * (exponent + 6) + steps));
  }
  explicit operator float() const {
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    const float a = (bits & 0x7f) == 0x7f ? std::numeric_limits<float>::quiet_NaN()
                    : exponent == 0       ? std::ldexp(static_cast<float>(mantissa), -9)
                                    : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    return (bits & 0x80) != 0 ? -a : a;
  }
};

}  // namespace quintet
