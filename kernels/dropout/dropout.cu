#include "kernels/dropout/dropout_gpu.h"
#include "kernels/dropout/mask.cuh"
#include "kernels/elementwise/operands_gpu.h"

namespace quintet::QT_GPU {
namespace {

// Rows that use one thread's mask bits: Threefry takes about 75 instructions an element, so a bf16
// row would otherwise be bound by them and not by memory.
constexpr int64_t kSharedRows = 32;

template <int kCount, typename T>
__device__ void drop_unit(const DropoutRule& rule, uint32_t kept, const T* residual, const T* x,
                          T* y, int64_t i) {
  float v[kCount];
  load<kCount>(x + i, v);
#pragma unroll
  for (int k = 0; k < kCount; ++k) v[k] = dropped(rule, kept >> k & 1u, v[k]);
  if (residual != nullptr) {
    float r[kCount];
    load<kCount>(residual + i, r);
#pragma unroll
    for (int k = 0; k < kCount; ++k) v[k] = r[k] + v[k];
  }
  store<kCount>(y + i, v);
}

/// Every element has its own bit.
template <typename T>
__global__ void drop_each(const __grid_constant__ DropoutRule rule, const T* residual, const T* x,
                          T* y, int64_t n, int64_t depth, bool vector) {
  for_units<kLanes<T>>(n, vector, [&](int64_t i, auto count) {
    const uint64_t number = rule.places.whole
                                ? static_cast<uint64_t>(i)
                                : rule.places.first(i / depth) + static_cast<uint64_t>(i % depth);
    drop_unit<count>(rule, kept_bits<count>(rule, number), residual, x, y, i);
  });
}

/// x: [outer, length, depth]; all places along length share a bit. A thread takes kCount columns of
/// kSharedRows rows.
template <int kCount, typename T>
__global__ void drop_shared(const __grid_constant__ DropoutRule rule, const T* residual, const T* x,
                            T* y, int64_t outer, int64_t length, int64_t depth) {
  const int64_t units = depth / kCount, parts = (length + kSharedRows - 1) / kSharedRows;
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t task = thread; task < outer * parts * units; task += threads) {
    const int64_t column = task % units * kCount, part = task / units % parts;
    const int64_t first = task / units / parts * length;
    const uint32_t kept =
        kept_bits<kCount>(rule, rule.places.first(first) + static_cast<uint64_t>(column));
    const int64_t begin = part * kSharedRows;
    const int64_t end = begin + kSharedRows < length ? begin + kSharedRows : length;
    for (int64_t row = first + begin; row < first + end; ++row)
      drop_unit<kCount>(rule, kept, residual, x, y, row * depth + column);
  }
}

}  // namespace

void apply_dropout(const char* op, const View& x, const View& residual, const View& y,
                   const Attrs& attrs, Stream stream) {
  const DropoutRule rule = dropout_rule(op, x, attrs);
  const int64_t n = x.elements(), depth = x.depth();
  if (n == 0) return;
  for_dtype(x, op, [&]<typename T>(T) {
    const T* from = elements<T>(x, op, "x");
    const T* plus = optional_elements<T>(residual, op, "residual");
    T* to = elements<T>(y, op, "y");
    const bool aligned = are_aligned({from, plus, to});
    if (rule.places.shared) {
      const int64_t length = x.size(-2), outer = x.rows() / length;
      const bool vector = aligned && depth % kLanes<T> == 0;
      const int64_t parts = (length + kSharedRows - 1) / kSharedRows;
      const int64_t tasks = outer * parts * (vector ? depth / kLanes<T> : depth);
      simt::launch(vector ? drop_shared<kLanes<T>, T> : drop_shared<1, T>,
                   {.grid = blocks_for(tasks), .block = kBlockThreads, .stream = stream}, rule,
                   plus, from, to, outer, length, depth);
      return;
    }
    const bool vector = aligned && rule.places.whole;
    simt::launch(drop_each<T>,
                 {.grid = blocks_for(vector ? n / kLanes<T> + 1 : n),
                  .block = kBlockThreads,
                  .stream = stream},
                 rule, plus, from, to, n, depth, vector);
  });
}

void dropout_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  expect_shape(in[0].elements() == out[0].elements(), "dropout", "... -> ...");
  apply_dropout("dropout", in[0], View::none(), out[0], attrs, stream);
}

}  // namespace quintet::QT_GPU
