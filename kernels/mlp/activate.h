#pragma once
// The elementwise part of the MLP, on buffers of floats. One thread.

#include "kernels/mlp/mlp.h"

namespace quintet::cpu {

/// y[i] = act0(h0[i]) act1(h1[i]); h1 null: y[i] = act0(h0[i]). y may be h0 or h1.
void activate(const Gate& gate, const float* h0, const float* h1, float* y, int64_t n);

/// d0[i] = dy[i] act0'(h0[i]) act1(h1[i]);  d1[i] = dy[i] act0(h0[i]) act1'(h1[i]);  y[i] as
/// activate() makes it, unless y is null; h1 null: d1 is not touched and act1(h1) is 1. d0 may be
/// h0, d1 may be h1, y may be dy.
void activate_grad(const Gate& gate, const float* h0, const float* h1, const float* dy, float* d0,
                   float* d1, float* y, int64_t n);

}  // namespace quintet::cpu
