#pragma once
// Memory and comparisons of the tests of generation's attention on the emulated GPU.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <span>

#include "kernels/decode_attention/decode_attention.h"
#include "kernels/decode_attention/decode_rows.h"
#include "kernels/device.h"
#include "kernels/simt/emulator/emulator.h"
#include "kernels/strided_copy.h"
#include "runtime/base/dtype.h"

namespace quintet {

namespace emulated {
void copy_strided_gpu(const StridedCopy& copy, Stream stream);
}
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
  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(data()), bytes_.size() - 64};
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

/// Records `work` behind kernels that write `inputs`, which are NaN before, and does that: a kernel which
/// begins early and reads the last one written before it waits gives something else. Each is the last in turn.
inline void run_behind_writers(std::vector<const Elements*> inputs,
                               const std::function<void()>& work) {
  static size_t turn = 0;
  std::ranges::rotate(inputs, inputs.begin() + static_cast<int64_t>(++turn % inputs.size()));
  const MemoryArena arena(Device::current().memory());
  std::vector<std::vector<std::byte>> copies;
  std::vector<simt::emulator::Work> recorded;
  simt::emulator::set_recorder([&](auto one) { recorded.push_back(std::move(one)); });
  for (const Elements* input : inputs) {
    const auto to = input->bytes();
    const auto& from = copies.emplace_back(to.begin(), to.end());
    std::ranges::fill(to, std::byte{0xff});
    const auto bytes = static_cast<int64_t>(to.size());
    emulated::copy_strided_gpu({to.data(), from.data(), bytes, {1, 1}, {0, 0}, {0, 0}}, {});
  }
  work();
  simt::emulator::set_recorder(nullptr);
  simt::emulator::replay(recorded);
}

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
