#pragma once
// Threefry-2x32 on the device: the same bits as runtime/base/threefry.h.

#include "kernels/simt/simt.cuh"
#include "kernels/step_keys.h"
#include "runtime/base/attrs.h"

namespace quintet::QT_GPU {

template <int kA, int kB, int kC, int kD>
QT_DEVICE void threefry_rounds(uint32_t& x0, uint32_t& x1) {
  x0 += x1, x1 = __funnelshift_l(x1, x1, kA) ^ x0;
  x0 += x1, x1 = __funnelshift_l(x1, x1, kB) ^ x0;
  x0 += x1, x1 = __funnelshift_l(x1, x1, kC) ^ x0;
  x0 += x1, x1 = __funnelshift_l(x1, x1, kD) ^ x0;
}

/// The key of a kernel's call: itself, or where it lies once a recording runs.
struct KeySource {
  Key key;
  const Key* place = nullptr;

  KeySource() = default;
  /// From the attributes key0 and key1.
  explicit KeySource(const Attrs& attrs)
      : key{static_cast<uint32_t>(attrs.get<int64_t>("key0")),
            static_cast<uint32_t>(attrs.get<int64_t>("key1"))},
        place(StepKeys::place_of(key)) {}
  __device__ Key operator()() const { return place == nullptr ? key : *place; }
};

/// split_at(key, i): element i of jax.random.split.
QT_DEVICE Key threefry_block(Key key, uint64_t i) {
  const uint32_t k0 = key.a, k1 = key.b, k2 = key.a ^ key.b ^ 0x1BD11BDAu;
  uint32_t x0 = static_cast<uint32_t>(i >> 32) + k0, x1 = static_cast<uint32_t>(i) + k1;
  threefry_rounds<13, 15, 26, 6>(x0, x1);
  x0 += k1, x1 += k2 + 1;
  threefry_rounds<17, 29, 16, 24>(x0, x1);
  x0 += k2, x1 += k0 + 2;
  threefry_rounds<13, 15, 26, 6>(x0, x1);
  x0 += k0, x1 += k1 + 3;
  threefry_rounds<17, 29, 16, 24>(x0, x1);
  x0 += k1, x1 += k2 + 4;
  threefry_rounds<13, 15, 26, 6>(x0, x1);
  x0 += k2, x1 += k0 + 5;
  return {x0, x1};
}

/// random_bits(key, i): element i of jax.random.bits.
QT_DEVICE uint32_t threefry_bits(Key key, uint64_t i) {
  const Key block = threefry_block(key, i);
  return block.a ^ block.b;
}

}  // namespace quintet::QT_GPU
