#pragma once
// Memory and comparisons of the tests of generation's attention on a device.

#include "kernels/decode_attention/decode_attention.h"
#include "tests/gpu_kernels/on_device.h"

namespace quintet::testing {

/// n elements on the device: rounded random numbers, or NaN where nothing was written; and what the host knows of them,
/// which fetch() renews after a kernel.
class Elements {
 public:
  Elements(int64_t n, DType dtype, std::mt19937* random, float deviation = 1)
      : dtype_(dtype),
        host_(drawn(static_cast<size_t>(n * size_of(dtype)), dtype, random, deviation)),
        memory_(Device::current(), host_) {}
  void* data() const { return memory_.data(); }
  const OnDevice<std::byte>& memory() const { return memory_; }
  void fetch() { host_ = memory_.back(); }
  float at(int64_t i) const {
    const void* host = host_.data();
    return dtype_ == DType::bf16 ? static_cast<float>(static_cast<const bfloat16*>(host)[i])
                                 : static_cast<const float*>(host)[i];
  }
  std::vector<float> part(int64_t begin, int64_t n) const {
    std::vector<float> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(at(begin + i));
    return values;
  }

 private:
  static std::vector<std::byte> drawn(size_t bytes, DType dtype, std::mt19937* random,
                                      float deviation) {
    std::vector<std::byte> host(bytes, std::byte{0xff});
    std::normal_distribution<float> draw(0, deviation);
    const auto size = static_cast<size_t>(size_of(dtype));
    for (size_t at = 0; random != nullptr && at < bytes; at += size) {
      const float x = draw(*random);
      const bfloat16 half(x);
      const void* from = dtype == DType::bf16 ? static_cast<const void*>(&half) : &x;
      std::memcpy(&host[at], from, size);
    }
    return host;
  }

  DType dtype_;
  std::vector<std::byte> host_;
  OnDevice<std::byte> memory_;
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
