// Products of the op list on the device: simt::gemm does the work.

#include "kernels/kernel.h"
#include "kernels/simt/host/gemm.h"
#include "kernels/vectors/operands_gpu.h"

namespace quintet::QT_GPU {
namespace {

/// Throws Bug unless the factors have one dtype, which the product reads both in.
DType dtype_of(Views in) {
  QT_CHECK(in[0].dtype == in[1].dtype, "matmul of {} and {}: they must have one dtype",
           name_of(in[0].dtype), name_of(in[1].dtype));
  return in[0].dtype;
}

}  // namespace

void matmul_gpu(Views in, Views out, const Attrs&, Stream stream) {
  const View &x = in[0], &w = in[1], &y = out[0];
  simt::gemm(stream, {.m = x.rows(),
                      .n = w.size(1),
                      .k = w.size(0),
                      .a = x.pointer,
                      .b = w.pointer,
                      .c = y.pointer,
                      .type = dtype_of(in),
                      .c_type = y.dtype,
                      .addend = addend_of(in, 2, 0)});
}

void matmul_t_gpu(Views in, Views out, const Attrs&, Stream stream) {
  const View &x = in[0], &w = in[1], &y = out[0];
  simt::gemm(stream, {.m = x.rows(),
                      .n = w.size(0),
                      .k = w.size(1),
                      .a = x.pointer,
                      .b = w.pointer,
                      .c = y.pointer,
                      .type = dtype_of(in),
                      .c_type = y.dtype,
                      .b_transposed = true,
                      .addend = addend_of(in, 2, 0)});
}

void matmul_grad_w_gpu(Views in, Views out, const Attrs&, Stream stream) {
  const View &x = in[0], &dy = in[1], &dw = out[0];
  simt::gemm(stream, {.m = x.depth(),
                      .n = dy.depth(),
                      .k = x.rows(),
                      .a = x.pointer,
                      .b = dy.pointer,
                      .c = dw.pointer,
                      .type = dtype_of(in),
                      .c_type = dw.dtype,
                      .a_transposed = true,
                      .addend = addend_of(in, 2, 0)});
}

}  // namespace quintet::QT_GPU
