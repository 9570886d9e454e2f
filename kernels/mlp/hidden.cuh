#pragma once
// Hidden units of an MLP on the device, a few neighbouring columns of a row at a time: from
// products to what dropout leaves, and the gradients back.

#include "kernels/dropout/mask.cuh"
#include "kernels/mlp/activate.cuh"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU::mlp {

/// v after dropout, of which `kept` has the bits; a mask without words drops nothing.
template <int kCount>
QT_DEVICE void drop(const DropoutMask& mask, uint32_t kept, float (&v)[kCount]) {
  if (mask.words == nullptr) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) v[i] = dropped(mask.rule.keep, kept >> i & 1u, v[i]);
}

/// y, so far h0, becomes dropout(act0(h0) act1(h1)); not gated: without the second factor. act0 and
/// act1 return Points.
template <int kCount, typename Act0, typename Act1>
QT_DEVICE void hidden(const Act0& act0, const Act1& act1, const DropoutMask& mask, uint32_t kept,
                      float (&y)[kCount], const float (&h1)[kCount], bool gated) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    y[i] = act0(y[i]).value;
    if (gated) y[i] *= act1(h1[i]).value;
  }
  drop(mask, kept, y);
}

/// y, so far its gradient, becomes what hidden() makes of h0 and h1, elements from `at` on; their
/// gradients go to d0 and d1, which may be h0 and h1. h1 null: d1 is not touched.
template <int kCount, typename T, typename Act0, typename Act1>
QT_DEVICE void hidden_grad(const Act0& act0, const Act1& act1, const DropoutMask& mask,
                           uint32_t kept, const T* h0, const T* h1, int64_t at, float (&y)[kCount],
                           T* d0, T* d1) {
  float a[kCount], b[kCount] = {};
  load<kCount>(h0 + at, a);
  if (h1 != nullptr) load<kCount>(h1 + at, b);
  drop(mask, kept, y);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float dy = y[i];
    const Point p0 = act0(a[i]), p1 = h1 != nullptr ? act1(b[i]) : Point();
    a[i] = dy * p0.slope * p1.value;
    b[i] = dy * p0.value * p1.slope;
    y[i] = p0.value * p1.value;
  }
  drop(mask, kept, y);
  store<kCount>(d0 + at, a);
  if (h1 != nullptr) store<kCount>(d1 + at, b);
}

}  // namespace quintet::QT_GPU::mlp
