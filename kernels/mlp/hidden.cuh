#pragma once
// Hidden units of an MLP on the device, a few neighbouring columns of a row at a time: from
// products to what dropout leaves, and the gradients back.

#include "kernels/dropout/mask.cuh"
#include "kernels/mlp/activate.cuh"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU::mlp {

/// Calls body(std::integral_constant<Activation, act>).
template <typename Body>
__host__ __device__ inline void for_activation(Activation act, const Body& body) {
  switch (act) {
    case Activation::linear:
      return body(std::integral_constant<Activation, Activation::linear>{});
    case Activation::relu:
      return body(std::integral_constant<Activation, Activation::relu>{});
    case Activation::gelu:
      return body(std::integral_constant<Activation, Activation::gelu>{});
    case Activation::silu:
      return body(std::integral_constant<Activation, Activation::silu>{});
    case Activation::gelu_erf:
      return body(std::integral_constant<Activation, Activation::gelu_erf>{});
  }
}

/// The Points of neighbouring numbers, of an activation that the compiler knows.
template <Activation kAct, bool kFast>
struct KnownActivation {
  template <int kCount>
  __device__ void operator()(const float (&h)[kCount], Point (&points)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) points[i] = activation<kAct, kFast>(h[i]);
  }
};
/// Of one known at run time: one branch for all numbers.
template <bool kFast>
struct AnyActivation {
  Activation act;
  template <int kCount>
  __device__ void operator()(const float (&h)[kCount], Point (&points)[kCount]) const {
    for_activation(act, [&](auto known) { KnownActivation<known(), kFast>()(h, points); });
  }
};

/// v after dropout, of which `kept` has the bits; a mask without words drops nothing.
template <int kCount>
QT_DEVICE void drop(const DropoutMask& mask, uint32_t kept, float (&v)[kCount]) {
  if (mask.words == nullptr) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) v[i] = dropped(mask.rule.scale, kept >> i & 1u, v[i]);
}

/// y, so far h0, becomes dropout(act0(h0) act1(h1)); not gated: without the second factor. act0 and
/// act1 make Points of kCount numbers.
template <int kCount, typename Act0, typename Act1>
QT_DEVICE void hidden(const Act0& act0, const Act1& act1, const DropoutMask& mask, uint32_t kept,
                      bool gated, const float (&h1)[kCount], float (&y)[kCount]) {
  Point p0[kCount], p1[kCount];
  act0(y, p0);
  if (gated) act1(h1, p1);
#pragma unroll
  for (int i = 0; i < kCount; ++i) y[i] = gated ? p0[i].value * p1[i].value : p0[i].value;
  drop(mask, kept, y);
}

/// y, so far its gradient, becomes a product of two activations; a and b become their gradients.
QT_DEVICE void gate_grad(Point p0, Point p1, float& a, float& b, float& y) {
  const float dy = y;
  a = dy * p0.slope * p1.value;
  b = dy * p0.value * p1.slope;
  y = p0.value * p1.value;
}

/// a and b, so far h0 and h1, become their gradients, and y, so far its gradient, what hidden() makes
/// of h0 and h1. Not gated: without h1.
template <int kCount, typename Act0, typename Act1>
QT_DEVICE void hidden_grad(const Act0& act0, const Act1& act1, const DropoutMask& mask,
                           uint32_t kept, bool gated, float (&a)[kCount], float (&b)[kCount],
                           float (&y)[kCount]) {
  Point p0[kCount], p1[kCount];
  act0(a, p0);
  if (gated) act1(b, p1);
  drop(mask, kept, y);
#pragma unroll
  for (int i = 0; i < kCount; ++i) gate_grad(p0[i], p1[i], a[i], b[i], y[i]);
  drop(mask, kept, y);
}

}  // namespace quintet::QT_GPU::mlp
