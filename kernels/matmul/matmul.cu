// Products of the op list on the device: simt::gemm does the work. Of weights that share x it is a batch whose x has stride 0.

#include <optional>

#include "kernels/kernel.h"
#include "kernels/matmul/each_product.h"
#include "kernels/simt/host/gemm.h"
#include "kernels/vectors/operands_gpu.h"
#include "runtime/base/memory/memory.h"

namespace quintet::QT_GPU {
namespace {

/// Throws Bug unless the factors have one dtype, which the product reads both in.
DType dtype_of(Views in) {
  QT_CHECK(in[0].dtype == in[1].dtype, "matmul of {} and {}: they must have one dtype",
           name_of(in[0].dtype), name_of(in[1].dtype));
  return in[0].dtype;
}

/// in: x, w -> y, and what is added to it.
simt::Gemm product(Views in, const View& y, const void* addend) {
  const View &x = in[0], &w = in[1];
  return {.m = x.rows(),
          .n = w.size(1),
          .k = w.size(0),
          .a = x.pointer,
          .b = w.pointer,
          .c = y.pointer,
          .type = dtype_of(in),
          .c_type = y.dtype,
          .addend = addend};
}

/// in: x, dy -> dw, and what is added to it.
simt::Gemm gradient_of_w(Views in, const View& dw, const void* addend) {
  const View &x = in[0], &dy = in[1];
  return {.m = x.depth(),
          .n = dy.depth(),
          .k = x.rows(),
          .a = x.pointer,
          .b = dy.pointer,
          .c = dw.pointer,
          .type = dtype_of(in),
          .c_type = dw.dtype,
          .a_transposed = true,
          .addend = addend};
}

/// So many products with one x, of w and y, or dy and dw, at these distances.
simt::Gemm batch_of(simt::Gemm first, size_t count, int64_t b_stride, int64_t c_stride) {
  first.batch = static_cast<int64_t>(count);
  first.b_stride = b_stride;
  first.c_stride = c_stride;
  return first;
}

/// Elements from each of several arrays of one size to the next, where they lie side by side (runtime/base/memory/memory.h).
std::optional<int64_t> stride_of(Views views) {
  const int64_t element = size_of(views[0].dtype), bytes = views[0].elements() * element;
  const auto* first = static_cast<const char*>(views[0].pointer);
  for (size_t i = 1; i < views.size(); ++i)
    if (views[i].pointer != first + static_cast<int64_t>(i) * side_by_side_stride(bytes))
      return std::nullopt;
  return side_by_side_stride(bytes) / element;
}

/// Whether results are added to what is there in their places, all of them or none.
bool add_in_place_or_not(Views addends, Views out) {
  if (addends.empty()) return true;
  for (size_t i = 0; i < out.size(); ++i)
    if (addends[i].pointer != out[i].pointer) return false;
  return true;
}

}  // namespace

void matmul_gpu(Views in, Views out, const Attrs&, Stream stream) {
  simt::gemm(stream, product(in, out[0], addend_of(in, 2, 0)));
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
  simt::gemm(stream, gradient_of_w(in, out[0], addend_of(in, 2, 0)));
}

void batched_matmul_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const size_t count = present(out);
  const auto w_stride = stride_of(in.subspan(1, count)), y_stride = stride_of(out.first(count));
  if (!w_stride || !y_stride || in[0].elements() == 0)
    return each_y(matmul_gpu, in, out, attrs, stream);
  simt::gemm(stream, batch_of(product(in, out[0], nullptr), count, *w_stride, *y_stride));
}

void batched_matmul_grad_x_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  each_dx(matmul_t_gpu, in, out, attrs, stream);
}

void batched_matmul_grad_w_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const size_t count = present(out);
  const auto dy_stride = stride_of(in.subspan(1, count)), dw_stride = stride_of(out.first(count));
  if (!dy_stride || !dw_stride || in[0].elements() == 0 ||
      !add_in_place_or_not(in.subspan(1 + kMostWeights), out.first(count)))
    return each_dw(matmul_grad_w_gpu, in, out, attrs, stream);
  simt::gemm(stream, batch_of(gradient_of_w(in, out[0], addend_of(in, 1 + kMostWeights, 0)), count,
                              *dy_stride, *dw_stride));
}

}  // namespace quintet::QT_GPU
