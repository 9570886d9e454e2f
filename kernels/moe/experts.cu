// The ops of experts.h on a GPU: their operands as grouped products, and the dropout of packed rows.

#include "kernels/dropout/mask.cuh"
#include "kernels/elementwise/elementwise_gpu.h"
#include "kernels/mlp/grouped.cuh"
#include "kernels/mlp/mlp_gpu.h"
#include "kernels/moe/experts.h"
#include "kernels/moe/moe_gpu.h"
#include "kernels/vectors/operands_gpu.h"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {
namespace {

using mlp::Grouped;
using mlp::grouped_product;
using mlp::Kind;

int small(int64_t size, const char* op) {
  QT_CHECK(size < int64_t{1} << 31, "{}: {} rows or columns are too many for one device", op, size);
  return static_cast<int>(size);
}

template <typename T>
Grouped<T> grouped_of(const char* op, const View& x, const View& offsets, int64_t columns) {
  Grouped<T> p{};
  p.offsets = offsets.data<const int32_t>();
  p.experts = small(offsets.depth() - 1, op);
  p.rows = small(x.rows(), op);
  p.depth = small(x.depth(), op);
  p.columns = small(columns, op);
  p.x[0] = elements<T>(x, op, "x");
  return p;
}

/// dw = x^T y + addend by expert.
template <typename T>
void weight_gradients(const char* op, const View& x, const View& offsets, const T* y,
                      const View& dw, const void* addend, Stream stream) {
  if (dw.absent() || dw.elements() == 0) return;
  const bool adds = put_addend(addend, dw);
  if (x.rows() == 0 && adds) return;
  if (x.rows() == 0) return fill_gpu(dw, 0, stream);
  Grouped<T> p = grouped_of<T>(op, x, offsets, dw.depth());
  p.w[0] = y;
  p.dw = elements<float>(dw, op, "dw");
  p.adds = adds;
  grouped_product(Kind::kWeights, p, stream);
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    dropout_kernel(const __grid_constant__ DropoutMask mask, const int32_t* offsets, int experts,
                   const T* x, T* y, int64_t rows, int64_t depth) {
  const int64_t warps = int64_t{gridDim.x} * (kBlockThreads / 32);
  for (int64_t r = int64_t{blockIdx.x} * (kBlockThreads / 32) + threadIdx.x / 32; r < rows;
       r += warps) {
    int low = 0, high = experts;  // the row's expert is the last whose rows begin at or before it
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (offsets[middle] <= r)
        low = middle;
      else
        high = middle - 1;
    }
    for (int64_t i = threadIdx.x % 32; i < depth; i += 32) {
      const bool kept = low < experts && (mask.bits<1>(low, i) & 1u) != 0;
      y[r * depth + i] =
          simt::from_float<T>(dropped(mask.rule.scale, kept, simt::to_float(x[r * depth + i])));
    }
  }
}

}  // namespace

void experts_in_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "experts_in";
  const View &w0 = in[2], &w1 = in[3];
  expect_shape(w0.rank == 3 && w0.size(1) == in[0].depth() && out[0].depth() == w0.depth(), op,
               "bne, bs, xef, xef? -> bnf");
  for_dtype(in[0], op, [&]<typename T>(T) {
    Grouped<T> p = grouped_of<T>(op, in[0], in[1], w0.depth());
    p.w[0] = elements<T>(w0, op, "wi_0"), p.w[1] = optional_elements<T>(w1, op, "wi_1");
    p.y = elements<T>(out[0], op, "y");
    p.h0 = optional_elements<T>(out[1], op, "h0"), p.h1 = optional_elements<T>(out[2], op, "h1");
    p.gate = Gate::of(op, attrs);
    grouped_product(w1.absent() ? Kind::kProduct : Kind::kGated, p, stream);
  });
}

void experts_in_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "experts_in_grad";
  const View &x = in[0], &offsets = in[1], &w0 = in[2], &w1 = in[3], &h0 = in[4], &h1 = in[5];
  const bool gated = !w1.absent();
  const int64_t bytes = h0.elements() * size_of(h0.dtype);
  const simt::Scratch workspace0(bytes, stream), workspace1(gated ? bytes : 0, stream);
  View d0 = h0, d1 = gated ? h1 : View::none();
  d0.pointer = workspace0.data<void>();
  if (gated) d1.pointer = workspace1.data<void>();
  gate_grad_gpu(std::vector<View>{h0, gated ? h1 : View::none(), in[6]}, std::vector<View>{d0, d1},
                attrs, stream);
  for_dtype(x, op, [&]<typename T>(T) {
    if (!out[0].absent()) {
      Grouped<T> p = grouped_of<T>(op, d0, offsets, out[0].depth());
      p.w[0] = elements<T>(w0, op, "wi_0");
      p.x[1] = optional_elements<T>(d1, op, "d1"), p.w[1] = optional_elements<T>(w1, op, "wi_1");
      p.y = elements<T>(out[0], op, "dx");
      grouped_product(Kind::kTransposed, p, stream);
    }
    weight_gradients<T>(op, x, offsets, elements<T>(d0, op, "d0"), out[1], addend_of(in, 7, 1),
                        stream);
    if (gated)
      weight_gradients<T>(op, x, offsets, elements<T>(d1, op, "d1"), out[2], addend_of(in, 7, 2),
                          stream);
  });
}

void grouped_matmul_gpu(Views in, Views out, const Attrs&, Stream stream) {
  const char* op = "grouped_matmul";
  expect_shape(in[2].rank == 3 && in[2].size(1) == in[0].depth(), op, "bne, bs, xef -> bnf");
  for_dtype(in[0], op, [&]<typename T>(T) {
    Grouped<T> p = grouped_of<T>(op, in[0], in[1], out[0].depth());
    p.w[0] = elements<T>(in[2], op, "w");
    p.y = elements<T>(out[0], op, "y");
    grouped_product(Kind::kProduct, p, stream);
  });
}

void grouped_matmul_t_gpu(Views in, Views out, const Attrs&, Stream stream) {
  const char* op = "grouped_matmul_t";
  expect_shape(in[2].rank == 3 && in[2].size(2) == in[0].depth(), op, "bnf, bs, xef -> bne");
  for_dtype(in[0], op, [&]<typename T>(T) {
    Grouped<T> p = grouped_of<T>(op, in[0], in[1], out[0].depth());
    p.w[0] = elements<T>(in[2], op, "w");
    p.y = elements<T>(out[0], op, "x");
    grouped_product(Kind::kTransposed, p, stream);
  });
}

void grouped_matmul_grad_w_gpu(Views in, Views out, const Attrs&, Stream stream) {
  const char* op = "grouped_matmul_grad_w";
  expect_shape(out[0].rank == 3 && in[0].rows() == in[2].rows(), op, "bne, bs, bnf -> xef");
  for_dtype(in[0], op, [&]<typename T>(T) {
    weight_gradients<T>(op, in[0], in[1], elements<T>(in[2], op, "y"), out[0], addend_of(in, 3, 0),
                        stream);
  });
}

void experts_dropout_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "experts_dropout";
  const View& x = in[0];
  const int64_t rows = x.rows(), depth = x.depth(), experts = in[1].depth() - 1;
  if (x.elements() == 0) return;
  const auto last = static_cast<size_t>(x.rank - 1);
  const int64_t sizes[] = {experts, 1, depth};
  View masks = View::of(static_cast<float*>(nullptr), sizes);  // rows of an expert share its bits
  masks.origin = {first_expert_of(in[1]), 0, x.origin[last]};
  masks.global = {masks.origin[0] + experts, 1, x.global[last]};
  Attrs shared = attrs;
  shared.set("broadcast_dim", int64_t{-2});
  const StoredDropoutMask made = make_mask(op, masks, shared, stream);
  for_dtype(x, op, [&]<typename T>(T) {
    simt::launch(dropout_kernel<T>,
                 {.grid = blocks_for(32 * rows), .block = kBlockThreads, .stream = stream},
                 made.mask, in[1].data<const int32_t>(), static_cast<int>(experts),
                 elements<T>(x, op, "x"), elements<T>(out[0], op, "y"), rows, depth);
  });
}

}  // namespace quintet::QT_GPU
