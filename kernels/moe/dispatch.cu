// Rows there and back, a warp a row, 16 bytes a lane where addresses allow. Memory-bound: the kernels
// read and write every row once. Sums are in float32 and in the order of the choices.

#include "kernels/moe/moe_gpu.h"
#include "kernels/vectors/operands_gpu.h"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU {
namespace {

/// Whether rows of x's and y's type may be read in units of 16 bytes.
template <typename T>
bool rows_are_aligned(int64_t depth, std::initializer_list<const void*> pointers) {
  return depth % kLanes<T> == 0 && are_aligned(pointers);
}
simt::Launch warps_for(int64_t rows, Stream stream) {
  return {.grid = blocks_for(32 * rows), .block = kBlockThreads, .stream = stream};
}

/// Calls body(row) for all of `rows` rows, each by a whole warp.
template <typename Body>
QT_DEVICE void for_rows(int64_t rows, const Body& body) {
  const int64_t warps = int64_t{gridDim.x} * (kBlockThreads / 32);
  for (int64_t row = int64_t{blockIdx.x} * (kBlockThreads / 32) + threadIdx.x / 32; row < rows;
       row += warps)
    body(row);
}
/// Calls body(column) for this lane's units of a row.
template <int kCount, typename Body>
QT_DEVICE void for_columns(int64_t depth, const Body& body) {
  for (int64_t i = threadIdx.x % 32 * kCount; i < depth; i += 32 * kCount) body(i);
}
template <int kCount, typename T>
QT_DEVICE void store_zeros(T* p) {
  const float zeros[kCount] = {};
  store<kCount>(p, zeros);
}

template <int kCount, typename T>
__global__ void __launch_bounds__(kBlockThreads)
    dispatch_kernel(const T* x, const int32_t* choices, const float* gates, T* y, int64_t rows,
                    int64_t depth, int k) {
  for_rows(rows, [&](int64_t r) {
    const int choice = choices[r];
    const T* from = x + int64_t{choice < 0 ? 0 : choice / k} * depth;
    const float gate = gates != nullptr && choice >= 0 ? gates[choice] : 1.0f;
    for_columns<kCount>(depth, [&](int64_t i) {
      if (choice < 0) return store_zeros<kCount>(y + r * depth + i);
      float v[kCount];
      load<kCount>(from + i, v);
#pragma unroll
      for (float& value : v) value *= gate;
      store<kCount>(y + r * depth + i, v);
    });
  });
}

template <int kCount, typename T>
__global__ void __launch_bounds__(kBlockThreads)
    combine_kernel(const T* y, const int32_t* rows, const float* gates, T* x, int64_t tokens,
                   int64_t depth, int k) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for_rows(tokens, [&](int64_t t) {
    // All lanes stay for the votes, those without columns too.
    for (int64_t first = 0; first < depth; first += 32 * kCount) {
      const int64_t i = first + lane * kCount;
      float sum[kCount] = {};
      for (int j0 = 0; j0 < k; j0 += 32) {
        const int64_t c = t * k + j0 + lane;
        const int mine = j0 + lane < k ? rows[c] : -1;
        const float gate = gates != nullptr && mine >= 0 ? gates[c] : 1.0f;
        for (unsigned left = __ballot_sync(kWholeWarp, mine >= 0); left != 0; left &= left - 1) {
          const int j = __ffs(static_cast<int>(left)) - 1;
          const int64_t row = __shfl_sync(kWholeWarp, mine, j);
          const float g = __shfl_sync(kWholeWarp, gate, j);
          if (i >= depth) continue;
          float v[kCount];
          load<kCount>(y + row * depth + i, v);
#pragma unroll
          for (int n = 0; n < kCount; ++n) sum[n] += g * v[n];
        }
      }
      if (i < depth) store<kCount>(x + t * depth + i, sum);
    }
  });
}

template <int kCount, typename T>
__global__ void __launch_bounds__(kBlockThreads)
    grad_gates_kernel(const T* y, const int32_t* rows, const T* dx, float* dgates, int64_t choices,
                      int64_t depth, int k) {
  for_rows(choices, [&](int64_t c) {
    const int64_t row = rows[c];
    float sum = 0;
    if (row >= 0)
      for_columns<kCount>(depth, [&](int64_t i) {
        float a[kCount], b[kCount];
        load<kCount>(y + row * depth + i, a);
        load<kCount>(dx + c / k * depth + i, b);
#pragma unroll
        for (int n = 0; n < kCount; ++n) sum += a[n] * b[n];
      });
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) dgates[c] = sum;
  });
}

template <int kCount, typename T>
__global__ void __launch_bounds__(kBlockThreads)
    mask_kernel(const T* x, const int32_t* mask, T* y, int64_t rows, int64_t depth) {
  for_rows(rows, [&](int64_t r) {
    const bool is_kept = mask[r] != 0;
    for_columns<kCount>(depth, [&](int64_t i) {
      if (!is_kept) return store_zeros<kCount>(y + r * depth + i);
      float v[kCount];
      load<kCount>(x + r * depth + i, v);
      store<kCount>(y + r * depth + i, v);
    });
  });
}

}  // namespace

void dispatch_gpu(Views in, Views out, const Attrs&, Stream stream) {
  const char* op = "dispatch";
  const View &x_view = in[0], &y_view = out[0];
  const int64_t depth = x_view.depth(), rows = y_view.rows();
  expect_shape(y_view.depth() == depth && rows == in[2].elements(), op,
               "ble, blk, bn, blk? -> bne");
  if (y_view.elements() == 0) return;
  const float* gates = optional_elements<float>(in[3], op, "gates");
  for_dtype(x_view, op, [&]<typename T>(T) {
    const T* x = elements<T>(x_view, op, "x");
    T* y = elements<T>(y_view, op, "y");
    simt::launch(
        rows_are_aligned<T>(depth, {x, y}) ? dispatch_kernel<kLanes<T>, T> : dispatch_kernel<1, T>,
        warps_for(rows, stream), x, in[2].data<const int32_t>(), gates, y, rows, depth,
        static_cast<int>(in[1].depth()));
  });
}

void combine_gpu(Views in, Views out, const Attrs&, Stream stream) {
  const char* op = "combine";
  const View &y_view = in[0], &x_view = out[0];
  const int64_t depth = y_view.depth(), tokens = x_view.rows();
  expect_shape(x_view.depth() == depth && tokens == in[1].rows(), op, "bne, blk, bn, blk? -> ble");
  if (x_view.elements() == 0) return;
  const float* gates = optional_elements<float>(in[3], op, "gates");
  for_dtype(y_view, op, [&]<typename T>(T) {
    const T* y = elements<T>(y_view, op, "y");
    T* x = elements<T>(x_view, op, "x");
    simt::launch(
        rows_are_aligned<T>(depth, {x, y}) ? combine_kernel<kLanes<T>, T> : combine_kernel<1, T>,
        warps_for(tokens, stream), y, in[1].data<const int32_t>(), gates, x, tokens, depth,
        static_cast<int>(in[1].depth()));
  });
}

void combine_grad_gates_gpu(Views in, Views out, const Attrs&, Stream stream) {
  const char* op = "combine_grad_gates";
  const int64_t depth = in[0].depth(), choices = in[1].elements();
  expect_shape(
      in[2].depth() == depth && in[2].rows() == in[1].rows() && out[0].elements() == choices, op,
      "bne, blk, ble -> blk");
  if (choices == 0) return;
  float* dgates = elements<float>(out[0], op, "dgates");
  for_dtype(in[0], op, [&]<typename T>(T) {
    const T* y = elements<T>(in[0], op, "y");
    const T* dx = elements<T>(in[2], op, "dx");
    simt::launch(rows_are_aligned<T>(depth, {y, dx}) ? grad_gates_kernel<kLanes<T>, T>
                                                     : grad_gates_kernel<1, T>,
                 warps_for(choices, stream), y, in[1].data<const int32_t>(), dx, dgates, choices,
                 depth, static_cast<int>(in[1].depth()));
  });
}

void mask_tokens_gpu(Views in, Views out, const Attrs&, Stream stream) {
  const char* op = "mask_tokens";
  const int64_t depth = in[0].depth(), rows = in[0].rows();
  expect_shape(in[1].elements() == rows && out[0].rows() == rows, op, "...e, ... -> ...e");
  if (in[0].elements() == 0) return;
  for_dtype(in[0], op, [&]<typename T>(T) {
    const T* x = elements<T>(in[0], op, "x");
    T* y = elements<T>(out[0], op, "y");
    simt::launch(rows_are_aligned<T>(depth, {x, y}) ? mask_kernel<kLanes<T>, T> : mask_kernel<1, T>,
                 warps_for(rows, stream), x, in[1].data<const int32_t>(), y, rows, depth);
  });
}

}  // namespace quintet::QT_GPU
