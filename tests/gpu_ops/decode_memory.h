#pragma once
// Memory and comparisons of the tests of generation's attention on a device.

#include "kernels/decode_attention/decode_attention.h"
#include "tests/gpu_kernels/on_device.h"
#include "tests/gpu_ops/element_bytes.h"

namespace quintet::testing {

/// n elements on the device: rounded random numbers, or NaN where nothing was written; and what the host knows of them,
/// which fetch() renews after a kernel.
class Elements {
 public:
  Elements(int64_t n, DType dtype, std::mt19937* random, float deviation = 1)
      : dtype_(dtype), memory_(Device::current(), drawn(n, dtype, random, deviation)) {
    fetch();
  }
  void* data() const { return memory_.data(); }
  const OnDevice<std::byte>& memory() const { return memory_; }
  void fetch() { host_ = floats_in(memory_.back(), dtype_); }
  float at(int64_t i) const { return host_[static_cast<size_t>(i)]; }
  std::vector<float> part(int64_t begin, int64_t n) const {
    return {host_.begin() + begin, host_.begin() + begin + n};
  }

 private:
  static std::vector<std::byte> drawn(int64_t n, DType dtype, std::mt19937* random,
                                      float deviation) {
    if (random == nullptr)
      return std::vector<std::byte>(static_cast<size_t>(n * size_of(dtype)), std::byte{0xff});
    std::normal_distribution<float> draw(0, deviation);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& x : values) x = draw(*random);
    return bytes_of(values, dtype);
  }

  DType dtype_;
  OnDevice<std::byte> memory_;
  std::vector<float> host_;
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

}  // namespace quintet::testing
