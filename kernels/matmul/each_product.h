#pragma once
// The ops of several weights that share x (matmul.h), by one product each: `product` is matmul, matmul_t or matmul_grad_w
// of a CPU or a GPU.

#include <array>
#include <cstddef>

#include "kernels/kernel.h"

namespace quintet {

inline constexpr size_t kMostWeights = 3;

/// How many of two or three views are there.
inline size_t present(Views views) {
  return views.back().absent() ? kMostWeights - 1 : kMostWeights;
}

/// What result i of an op of so many operands is added to, or View::none().
inline View addend_view(Views in, size_t operands, size_t i) {
  return operands + i < in.size() ? in[operands + i] : View::none();
}

/// in: x, w_i -> y_i
inline void each_y(Kernel product, Views in, Views out, const Attrs& attrs, Stream stream) {
  for (size_t i = 0; i < present(in.subspan(1, kMostWeights)); ++i)
    product(std::array{in[0], in[1 + i]}, out.subspan(i, 1), attrs, stream);
}

/// in: w_i, dy_i (, addend) -> dx; `product`: matmul_t
inline void each_dx(Kernel product, Views in, Views out, const Attrs& attrs, Stream stream) {
  View sum = addend_view(in, 2 * kMostWeights, 0);
  for (size_t i = present(in.first(kMostWeights)); i-- > 0; sum = out[0])
    product(std::array{in[kMostWeights + i], in[i], sum}, out, attrs, stream);
}

/// in: x, dy_i (, addends) -> dw_i; `product`: matmul_grad_w
inline void each_dw(Kernel product, Views in, Views out, const Attrs& attrs, Stream stream) {
  for (size_t i = 0; i < present(in.subspan(1, kMostWeights)); ++i)
    product(std::array{in[0], in[1 + i], addend_view(in, 1 + kMostWeights, i)}, out.subspan(i, 1),
            attrs, stream);
}

}  // namespace quintet
