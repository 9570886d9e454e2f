#pragma once
// Memory and comparisons of the tests of generation's attention on the emulated GPU.

#include <gtest/gtest.h>

#include <random>

#include "kernels/decode_attention/decode_attention.h"
#include "kernels/decode_attention/decode_rows.h"
#include "kernels/simt/emulator/emulator.h"
#include "runtime/base/dtype.h"

namespace quintet {

namespace simt = emulated::simt;

/// Device memory of n elements: rounded random numbers, or NaN where nothing was written.
class Elements {
 public:
  Elements(const Elements&) = delete;  // a copy would be aligned otherwise
  Elements(int64_t n, DType dtype, std::mt19937* random, float deviation = 1)
      : dtype_(dtype), bytes_(static_cast<size_t>(n * size_of(dtype)) + 64, std::byte{0xff}) {
    std::normal_distribution<float> draw(0, deviation);
    for (int64_t i = 0; random != nullptr && i < n; ++i) set(i, draw(*random));
  }
  void* data() const {
    const auto at = reinterpret_cast<uintptr_t>(bytes_.data());
    return reinterpret_cast<void*>((at + 63) / 64 * 64);
  }
  void set(int64_t i, float x) {
    if (dtype_ == DType::bf16)
      static_cast<bfloat16*>(data())[i] = bfloat16(x);
    else
      static_cast<float*>(data())[i] = x;
  }
  float at(int64_t i) const {
    return dtype_ == DType::bf16 ? static_cast<float>(static_cast<const bfloat16*>(data())[i])
                                 : static_cast<const float*>(data())[i];
  }
  std::vector<float> part(int64_t begin, int64_t n) const {
    std::vector<float> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(at(begin + i));
    return values;
  }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
};

struct AlignedFloats {
  std::vector<float> memory;
  float* start;
  explicit AlignedFloats(int64_t n)
      : memory(static_cast<size_t>(n) + 64, 0.0f),
        start(reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.data()) + 255) / 256 *
                                       256)) {}
};

inline void expect_close(const Elements& got, int64_t begin, const std::vector<float>& want,
                         DType dtype) {
  // Values are of the size of 1; bfloat16 results carry its rounding, 2^-9 of them.
  const double tolerance = dtype == DType::bf16 ? 8e-3 : 2e-6;
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got.at(begin + static_cast<int64_t>(i)), want[i],
                tolerance * (1 + std::abs(want[i])))
        << "element " << i;
}

}  // namespace quintet
