#include "kernels/rms_norm/rms_norm_gpu.h"
#include "kernels/rms_norm/rows.cuh"
#include "kernels/vectors/operands_gpu.h"

namespace quintet::QT_GPU {
namespace {

template <typename T>
struct NormArgs {
  const T* x;
  const T* y = nullptr;  // added to x, if any
  const float* scale;
  T* x_new = nullptr;
  T* out;
  int64_t rows;
  int32_t depth;
  float eps;
  bool has_dropout = false;
  DropoutMask mask{};
};

__device__ float reciprocal_root(float sum_of_squares, int depth, float eps) {
  return 1.0f / sqrtf(sum_of_squares / static_cast<float>(depth) + eps);
}

template <typename S, bool kResidual>
__global__ void __launch_bounds__(kBlockThreads)
    norm_kernel(const __grid_constant__ NormArgs<typename S::Type> a) {
  using T = typename S::Type;
  auto workspace = simt::shared<float>(0, 32);
  const int64_t row = int64_t{blockIdx.x} * S::kRows + threadIdx.x / S::kThreads;
  if (row >= a.rows) return;  // a whole warp
  RowTile<S> tile;
  load_tile<S>(a.x + row * a.depth, a.depth, tile);
  if constexpr (kResidual) {
    RowTile<S> added;
    load_tile<S>(a.y + row * a.depth, a.depth, added);
    for_row_units<S>(a.depth, [&](int u, int at) {
      float v[S::kLane], y[S::kLane];
      unpack_words<T>(tile.words[u], v);
      unpack_words<T>(added.words[u], y);
      const uint32_t bits = a.has_dropout ? a.mask.template bits<S::kLane>(row, at) : 0;
#pragma unroll
      for (int k = 0; k < S::kLane; ++k)
        v[k] += a.has_dropout ? dropped(a.mask.rule.keep, bits >> k & 1u, y[k]) : y[k];
      // The norm sees the sum as it is stored.
      pack_words<T>(v, tile.words[u]);
      store_words(a.x_new + row * a.depth + at, tile.words[u]);
    });
  }
  float squares = 0;
  for_row_units<S>(a.depth, [&](int u, int) {
    float v[S::kLane];
    unpack_words<T>(tile.words[u], v);
#pragma unroll
    for (int k = 0; k < S::kLane; ++k) squares += v[k] * v[k];
  });
  const float r = reciprocal_root(row_sum<S>(squares, workspace), a.depth, a.eps);
  for_row_units<S>(a.depth, [&](int u, int at) {
    float v[S::kLane], scale[S::kLane];
    unpack_words<T>(tile.words[u], v);
    load<S::kLane>(a.scale + at, scale);
#pragma unroll
    for (int k = 0; k < S::kLane; ++k) v[k] = v[k] * r * scale[k];
    store<S::kLane>(a.out + row * a.depth + at, v);
  });
}

/// Any depth, any alignment: a block a row, read twice.
template <typename T, bool kResidual>
__global__ void __launch_bounds__(kBlockThreads)
    plain_norm_kernel(const __grid_constant__ NormArgs<T> a) {
  auto workspace = simt::shared<float>(0, 32);
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const int64_t at = row * a.depth;
    float squares = 0;
    for (int i = static_cast<int>(threadIdx.x); i < a.depth; i += kBlockThreads) {
      float v = simt::to_float(a.x[at + i]);
      if constexpr (kResidual) {
        const float y = simt::to_float(a.y[at + i]);
        v += a.has_dropout
                 ? dropped(a.mask.rule.keep, (a.mask.template bits<1>(row, i) & 1u) != 0, y)
                 : y;
        a.x_new[at + i] = simt::from_float<T>(v);
        v = simt::to_float(a.x_new[at + i]);
      }
      squares += v * v;
    }
    const float r = reciprocal_root(block_sum(squares, workspace), a.depth, a.eps);
    const T* x = kResidual ? a.x_new : a.x;
    for (int i = static_cast<int>(threadIdx.x); i < a.depth; i += kBlockThreads)
      a.out[at + i] = simt::from_float<T>(simt::to_float(x[at + i]) * r * a.scale[i]);
  }
}

template <typename T, bool kResidual>
void launch_norm(NormArgs<T> a, bool vector, Stream stream) {
  constexpr size_t kShared = 32 * sizeof(float);
  const auto run = [&]<typename S>(S) {
    const int64_t blocks = (a.rows + S::kRows - 1) / S::kRows;
    simt::launch(norm_kernel<S, kResidual>,
                 {.grid = static_cast<unsigned>(blocks),
                  .block = kBlockThreads,
                  .shared = kShared,
                  .stream = stream},
                 a);
  };
  const int units = a.depth / kLanes<T>;
  // A thread holds at most 32 elements.
  constexpr int kMost = 32 / kLanes<T>;
  if (!vector || a.depth % kLanes<T> != 0 || units > kBlockThreads * kMost) {
    const auto blocks = static_cast<unsigned>(a.rows < (1 << 20) ? a.rows : 1 << 20);
    simt::launch(plain_norm_kernel<T, kResidual>,
                 {.grid = blocks, .block = kBlockThreads, .shared = kShared, .stream = stream}, a);
  } else if (units <= 32 * kMost / 4) {
    run(RowShape<T, 32, kMost / 4>{});
  } else if (units <= 32 * kMost / 2) {
    run(RowShape<T, 32, kMost / 2>{});
  } else if (units <= 32 * kMost) {
    run(RowShape<T, 32, kMost>{});
  } else if (!kResidual && sizeof(T) == 2 && units <= 32 * kMost * 2) {
    run(RowShape<T, 32, kMost * 2>{});  // 64 elements a thread, still without a block's barriers
  } else if (units <= kBlockThreads * kMost / 4) {
    run(RowShape<T, kBlockThreads, kMost / 4>{});
  } else if (units <= kBlockThreads * kMost / 2) {
    run(RowShape<T, kBlockThreads, kMost / 2>{});
  } else {
    run(RowShape<T, kBlockThreads, kMost>{});
  }
}

}  // namespace

void rms_norm_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const int64_t rows = in[0].rows(), depth = in[0].depth();
  expect_shape(in[1].elements() == depth && out[0].elements() == in[0].elements(), "rms_norm",
               "...e, e -> ...e");
  if (in[0].elements() == 0) return;
  for_dtype(in[0], "rms_norm", [&]<typename T>(T) {
    NormArgs<T> a{.x = elements<T>(in[0], "rms_norm", "x"),
                  .scale = elements<float>(in[1], "rms_norm", "scale"),
                  .out = elements<T>(out[0], "rms_norm", "y"),
                  .rows = rows,
                  .depth = checked_depth(depth),
                  .eps = static_cast<float>(attrs.get_or<double>("eps", 1e-6))};
    launch_norm<T, false>(a, are_aligned({a.x, a.scale, a.out}), stream);
  });
}

void add_rms_norm_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "add_rms_norm";
  const int64_t n = in[0].elements(), depth = in[0].depth();
  expect_shape(in[1].elements() == n && in[2].elements() == depth && out[0].elements() == n &&
                   out[1].elements() == n,
               op, "...e, ...e, e -> ...e, ...e");
  if (n == 0) return;
  for_dtype(in[0], op, [&]<typename T>(T) {
    NormArgs<T> a{.x = elements<T>(in[0], op, "x"),
                  .y = elements<T>(in[1], op, "y"),
                  .scale = elements<float>(in[2], op, "scale"),
                  .x_new = elements<T>(out[0], op, "x_new"),
                  .out = elements<T>(out[1], op, "out"),
                  .rows = in[0].rows(),
                  .depth = checked_depth(depth),
                  .eps = static_cast<float>(attrs.get_or<double>("eps", 1e-6))};
    a.has_dropout = attrs.get_or<double>("rate", 0) != 0;
    const StoredDropoutMask made = a.has_dropout ? make_mask(op, in[1], attrs, stream)
                                                 : StoredDropoutMask{simt::Scratch(0, stream), {}};
    a.mask = made.mask;
    launch_norm<T, true>(a, are_aligned({a.x, a.y, a.scale, a.x_new, a.out}), stream);
  });
}

}  // namespace quintet::QT_GPU
