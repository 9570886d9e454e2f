#pragma once
// A gradient as an update reads and uses it, on a GPU: FloatPointer and cpu::GradientUse.

#include "kernels/optimizers/float_pointer.h"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU {

/// kCount elements from the i-th on; more than one: i is a multiple of kCount and the array aligned to 16 bytes.
template <int kCount>
QT_DEVICE void load(const FloatPointer& p, int64_t i, float (&v)[kCount]) {
  if (p.is_bf16)
    load<kCount>(static_cast<const bf16*>(p.pointer) + i, v);
  else
    load<kCount>(static_cast<const float*>(p.pointer) + i, v);
}
template <int kCount>
QT_DEVICE void store(const FloatPointer& p, int64_t i, const float (&v)[kCount]) {
  if (p.is_bf16)
    store<kCount>(static_cast<bf16*>(p.pointer) + i, v);
  else
    store<kCount>(static_cast<float*>(p.pointer) + i, v);
}

/// clamp(scale * g, -limit, limit); a NaN stays a NaN.
struct UsedGradient {
  float scale, limit;
  __device__ float operator()(float g) const {
    g *= scale;
    return g > limit ? limit : g < -limit ? -limit : g;
  }
};

}  // namespace quintet::QT_GPU
