#pragma once
// Dense layers in 8-bit floating point, as Transformer Engine trains them: operands are multiplied by a scale, rounded to
// E4M3 (x and w) or E5M2 (gradients), and their products, accumulated in float32, divided by the scales again. Layers
// that share x are one call: q, k and v; wi_0 and wi_1. Their kernels have one scale, and their gradients another.
//
//   matmul_fp8       x [..., k], w_i [k, n]                     ->  y_i [..., n]    y_i = q(x) q(w_i)
//   matmul_fp8_grad  x [..., k], w_i [k, n], dy_i [..., n]      ->  dx [..., k]     dx = sum over i of q(dy_i) q(w_i)^T
//                                                                   dw_i [k, n]     dw_i = q(x)^T q(dy_i), in float32
// dx and dw_i may be added to what is there (`&` in runtime/op/ops.def).
//
// `scaling`: Fp8Scaling of all layers [layers, 20], these ones' number `layer` among them, whose amax grows to what operands had: x and w in matmul_fp8, dy in its gradient. It is what
// calls of a step share and is changed between steps alone (update_fp8_scaling), so what a step computes does not depend on
// their order. Without it each call takes its scales from its own operands (current scaling).
// gradient_format: 0 E4M3, 1 E5M2, as enum Float8.
//
// Under delayed scaling who makes x may leave it as its bytes of E4M3, which are then `x`, and the same transposed, [k, rows]
// of whole 16 rows, `x_t`: the first are all that matmul_fp8 reads, the others all that its gradient does. Its amax has grown
// there (rms_norm_fp8, add_rms_norm_fp8, gate_fp8). The bytes are those that a cast makes of bfloat16. Likewise `w8` is all w_i in
// E4M3, as cast_fp8_weights leaves them before a step's first product: transposed, [n, k] each, then side by side, [k, all n].
//
// A finite number that is too large is rounded to the largest; one that is not finite becomes NaN, so that it is seen in the
// gradients. k and n must be multiples of 16, as tensor cores take 16 bytes. On a CPU and in the emulator the same numbers
// are multiplied in float32: for tests.

#include <array>
#include <functional>
#include <limits>
#include <span>

#include "kernels/kernel.h"
#include "runtime/base/float8.h"

namespace quintet {

/// Operands of a dense layer, by the place of their numbers in Fp8Scaling.
enum Fp8Operand { kFp8X, kFp8W, kFp8Gradient, kFp8Operands };

struct alignas(16) Fp8Scaling {
  struct Inverse {  // at multiples of 16 bytes, as cuBLASLt reads them
    float value;
    float unused[3];
  } scale_inv[kFp8Operands];  // 1 / scale
  float scale[kFp8Operands];  // what numbers are multiplied by before they are rounded
  float amax
      [kFp8Operands];  // largest magnitude of this step's numbers; NaN's bits are above all others
  float unused[2];
};
inline constexpr int64_t kFp8ScalingFloats = sizeof(Fp8Scaling) / sizeof(float);

/// Transformer Engine's delayed scaling: a scale that takes `amax` to `scaled_max`; as before if there is none.
constexpr float next_fp8_scale(float amax, float before, float scaled_max) {
  constexpr float kMost = std::numeric_limits<float>::max();
  if (!(amax > 0 && amax <= kMost)) return before;
  const float scale = scaled_max / amax;
  return scale <= kMost ? scale : kMost;
}

/// The end of a step, of `count` layers: each amax goes into its history, whose first place it takes before all move down by
/// one, and the scale follows from the largest there, or from the new one alone.
struct Fp8Update {
  Fp8Scaling* scalings = nullptr;  // [count]
  float* history = nullptr;        // [count, kFp8Operands, length]
  int64_t count = 0, length = 0;
  bool most_recent = false;
  float scaled_max[kFp8Operands] = {};  // largest number of the format / 2^margin
};

struct UpdateControl;  // kernels/optimizers/gpu_arrays.h
/// `control` null, or its skip 0; else amax is forgotten and nothing else changes.
void update_fp8_scaling_cpu(const Fp8Update& update, const UpdateControl* control);

/// Throws a usage error unless tensor cores take products of these sizes.
void check_fp8_sizes(int64_t k, int64_t n);

/// Layers that share x, whose weights leave in E4M3: w8 of matmul_fp8; scaling's amax of w grows.
struct Fp8Weights {
  std::array<const void*, 3> w{};  // [k, n] each, the first `count`
  int64_t count = 0, k = 0, n = 0;
  DType dtype = DType::f32;
  uint8_t* bytes = nullptr;  // [2 count k n]
  Fp8Scaling* scaling = nullptr;
};
void cast_fp8_weights_cpu(std::span<const Fp8Weights> layers);

/// Of norms whose results leave in E4M3 on a GPU: columns that a block's shared memory has room for.
inline constexpr int64_t kMostFp8NormDepth = 4096;

namespace cpu {
/// Calls make(y), which writes y [..., columns] in float32, for x of the layer that `scaling` and `attrs` name, and leaves it in
/// E4M3: out[0] [..., columns], out[1] [columns, rows] unless absent.
void make_fp8_bytes(Views out, const View& scaling, const Attrs& attrs,
                    const std::function<void(const View& y)>& make);
}  // namespace cpu

void matmul_fp8_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void matmul_fp8_grad_cpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
