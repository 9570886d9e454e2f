#pragma once
// A gradient as an update uses it, on a GPU: cpu::GradientUse.

#include "kernels/simt/simt.cuh"

namespace quintet::QT_GPU {

/// clamp(scale * g, -limit, limit); a NaN stays a NaN.
struct UsedGradient {
  float scale, limit;
  __device__ float operator()(float g) const {
    g *= scale;
    return g > limit ? limit : g < -limit ? -limit : g;
  }
};

}  // namespace quintet::QT_GPU
