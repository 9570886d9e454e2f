#include "kernels/cpu/addend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/operands.h"
#include "kernels/matmul/each_product.h"
#include "kernels/matmul/matmul.h"

namespace quintet {
void matmul_cpu(Views in, Views out, const Attrs&, Stream) {
  const View &x = in[0], &w = in[1], &y = out[0];
  const int64_t rows = x.rows(), k = x.depth(), n = w.depth();
  cpu::expect_shape(w.rank == 2 && w.size(0) == k && y.rows() == rows && y.depth() == n, "matmul",
                    "...k, kn -> ...n");
  cpu::gemm({.m = rows, .n = n, .k = k, .beta = cpu::copy_addend(in, 2, out, 0)},
            cpu::f32(x, "matmul", "x"), k, cpu::f32(w, "matmul", "w"), n,
            cpu::f32(y, "matmul", "y"), n);
}

void matmul_t_cpu(Views in, Views out, const Attrs&, Stream) {
  const View &x = in[0], &w = in[1], &y = out[0];
  const int64_t rows = x.rows(), k = x.depth(), n = w.size(0);
  cpu::expect_shape(w.rank == 2 && w.size(1) == k && y.rows() == rows && y.depth() == n, "matmul_t",
                    "...k, nk -> ...n");
  cpu::gemm(
      {.m = rows, .n = n, .k = k, .transpose_b = true, .beta = cpu::copy_addend(in, 2, out, 0)},
      cpu::f32(x, "matmul_t", "x"), k, cpu::f32(w, "matmul_t", "w"), k,
      cpu::f32(y, "matmul_t", "y"), n);
}

void matmul_grad_w_cpu(Views in, Views out, const Attrs&, Stream) {
  const View &x = in[0], &dy = in[1], &dw = out[0];
  const int64_t rows = x.rows(), k = x.depth(), n = dy.depth();
  cpu::expect_shape(dy.rows() == rows && dw.rank == 2 && dw.size(0) == k && dw.size(1) == n,
                    "matmul_grad_w", "...k, ...n -> kn");
  cpu::gemm(
      {.m = k, .n = n, .k = rows, .transpose_a = true, .beta = cpu::copy_addend(in, 2, out, 0)},
      cpu::f32(x, "matmul_grad_w", "x"), k, cpu::f32(dy, "matmul_grad_w", "dy"), n,
      cpu::f32(dw, "matmul_grad_w", "dw"), n);
}

void batched_matmul_cpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  each_y(matmul_cpu, in, out, attrs, stream);
}
void batched_matmul_grad_x_cpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  each_dx(matmul_t_cpu, in, out, attrs, stream);
}
void batched_matmul_grad_w_cpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  each_dw(matmul_grad_w_cpu, in, out, attrs, stream);
}

}  // namespace quintet
