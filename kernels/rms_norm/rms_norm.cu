#include "kernels/fp8/cast.cuh"
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
  Fp8Bytes bytes{};  // in place of `out`
};

__device__ float reciprocal_root(float sum_of_squares, int depth, float eps) {
  return 1.0f / sqrtf(sum_of_squares / static_cast<float>(depth) + eps);
}

/// A row, which may be a residual's sum and is then stored, as it lies in memory; returns what it is multiplied by.
template <typename S, bool kResidual>
QT_DEVICE float load_row(const NormArgs<typename S::Type>& a, int64_t row,
                         simt::Shared<float> workspace, RowTile<S>& tile) {
  using T = typename S::Type;
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
  return reciprocal_root(row_sum<S>(squares, workspace), a.depth, a.eps);
}

/// Unit u of a row times r and the gains from element `at` on.
template <typename S>
QT_DEVICE void norm_unit(const NormArgs<typename S::Type>& a, const RowTile<S>& tile, int u, int at,
                         float r, float (&v)[S::kLane]) {
  float scale[S::kLane];
  unpack_words<typename S::Type>(tile.words[u], v);
  load<S::kLane>(a.scale + at, scale);
#pragma unroll
  for (int k = 0; k < S::kLane; ++k) v[k] = v[k] * r * scale[k];
}

template <typename S, bool kResidual>
__global__ void __launch_bounds__(kBlockThreads)
    norm_kernel(const __grid_constant__ NormArgs<typename S::Type> a) {
  auto workspace = simt::shared<float>(0, 32);
  const int64_t row = int64_t{blockIdx.x} * S::kRows + threadIdx.x / S::kThreads;
  if (row >= a.rows) return;  // a whole warp
  RowTile<S> tile;
  const float r = load_row<S, kResidual>(a, row, workspace, tile);
  for_row_units<S>(a.depth, [&](int u, int at) {
    float v[S::kLane];
    norm_unit<S>(a, tile, u, at, r, v);
    store<S::kLane>(a.out + row * a.depth + at, v);
  });
}

/// Rows of a block that leave in E4M3: with the transpose, so many that a column's bytes are a sector of memory.
inline int fp8_rows(int depth) { return depth <= 2048 ? 32 : 16; }
/// Words from one row to the next in shared memory: an odd number, for store_columns().
__host__ __device__ inline int fp8_stride(int depth) { return depth / 4 | 1; }

template <typename S, bool kResidual>
__global__ void __launch_bounds__(kBlockThreads)
    norm_fp8_kernel(const __grid_constant__ NormArgs<typename S::Type> a, int block_rows) {
  using T = typename S::Type;
  auto workspace = simt::shared<float>(0, 32);
  const int stride = fp8_stride(a.depth);
  auto bytes = simt::shared<uint32_t>(32 * sizeof(float), static_cast<size_t>(block_rows * stride));
  const int64_t first = int64_t{blockIdx.x} * block_rows;
  const float scale = *a.bytes.scale;
  uint32_t most = 0;
#pragma unroll 1
  for (int begin = 0; begin < block_rows; begin += S::kRows) {
    const int row_of_block = begin + static_cast<int>(threadIdx.x) / S::kThreads;
    const int64_t row = first + row_of_block;
    if (row >= a.rows) break;  // a whole warp, or the block
    RowTile<S> tile;
    const float r = load_row<S, kResidual>(a, row, workspace, tile);
    for_row_units<S>(a.depth, [&](int u, int at) {
      float v[S::kLane];
      norm_unit<S>(a, tile, u, at, r, v);
      pack_words<T>(v, tile.words[u]);  // rounded as if it were stored
      unpack_words<T>(tile.words[u], v);
      uint32_t words[S::kLane / 4];
      round_to_bytes<Float8::e4m3>(v, scale, words, most);
      store_words(a.bytes.plain + row * a.depth + at, words);
      if (a.bytes.transposed == nullptr) return;
#pragma unroll
      for (int w = 0; w < S::kLane / 4; ++w) bytes[row_of_block * stride + at / 4 + w] = words[w];
    });
  }
  add_to_amax(most, a.bytes.amax);
  if (a.bytes.transposed == nullptr) return;
  __syncthreads();
  store_columns(bytes, stride, block_rows, first, a.rows, a.depth, a.bytes.transposed);
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

template <typename T, bool kResidual, bool kFp8 = false>
void launch_norm(NormArgs<T> a, bool vector, Stream stream) {
  constexpr size_t kShared = 32 * sizeof(float);
  const auto run = [&]<typename S>(S) {
    if constexpr (kFp8) {
      const int rows = fp8_rows(a.depth);
      return simt::launch(
          norm_fp8_kernel<S, kResidual>,
          {.grid = static_cast<unsigned>((a.rows + rows - 1) / rows),
           .block = kBlockThreads,
           .shared = kShared + static_cast<size_t>(rows * fp8_stride(a.depth)) * sizeof(uint32_t),
           .stream = stream},
          a, rows);
    }
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
    QT_ASSERT(!kFp8);
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

namespace {

/// What both forms of an op have in common.
template <typename T>
NormArgs<T> norm_args(const char* op, const View& x, const View& scale, const Attrs& attrs) {
  return {.x = elements<T>(x, op, "x"),
          .scale = elements<float>(scale, op, "scale"),
          .out = nullptr,
          .rows = x.rows(),
          .depth = checked_depth(x.depth()),
          .eps = static_cast<float>(attrs.get_or<double>("eps", 1e-6))};
}

/// x + dropout(y) and its norm, which finish(args) says where to put and launches.
template <typename Finish>
void add_norm(const char* op, Views in, const View& x_new, const Attrs& attrs, Stream stream,
              const Finish& finish) {
  const int64_t n = in[0].elements();
  expect_shape(in[1].elements() == n && in[2].elements() == in[0].depth() && x_new.elements() == n,
               op, "...e, ...e, e -> ...e, ...e");
  if (n == 0) return;
  for_dtype(in[0], op, [&]<typename T>(T) {
    NormArgs<T> a = norm_args<T>(op, in[0], in[2], attrs);
    a.y = elements<T>(in[1], op, "y");
    a.x_new = elements<T>(x_new, op, "x_new");
    a.has_dropout = attrs.get_or<double>("rate", 0) != 0;
    const StoredDropoutMask made = a.has_dropout ? make_mask(op, in[1], attrs, stream)
                                                 : StoredDropoutMask{simt::Scratch(0, stream), {}};
    a.mask = made.mask;
    finish(a);
  });
}

}  // namespace

void rms_norm_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "rms_norm";
  expect_shape(in[1].elements() == in[0].depth() && out[0].elements() == in[0].elements(), op,
               "...e, e -> ...e");
  if (in[0].elements() == 0) return;
  for_dtype(in[0], op, [&]<typename T>(T) {
    NormArgs<T> a = norm_args<T>(op, in[0], in[1], attrs);
    a.out = elements<T>(out[0], op, "y");
    launch_norm<T, false>(a, are_aligned({a.x, a.scale, a.out}), stream);
  });
}

void rms_norm_fp8_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "rms_norm_fp8";
  expect_shape(in[1].elements() == in[0].depth() && out[0].elements() == in[0].elements(), op,
               "...e, e -> ...e");
  if (in[0].elements() == 0) return;
  for_dtype(in[0], op, [&]<typename T>(T) {
    NormArgs<T> a = norm_args<T>(op, in[0], in[1], attrs);
    a.bytes = Fp8Bytes(out[0], out[1], scaling_of(in[2], attrs, op));
    launch_norm<T, false, true>(a, are_aligned({a.x, a.scale}), stream);
  });
}

void add_rms_norm_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "add_rms_norm";
  expect_shape(out[1].elements() == in[0].elements(), op, "...e, ...e, e -> ...e, ...e");
  add_norm(op, in, out[0], attrs, stream, [&]<typename T>(NormArgs<T>& a) {
    a.out = elements<T>(out[1], op, "out");
    launch_norm<T, true>(a, are_aligned({a.x, a.y, a.scale, a.x_new, a.out}), stream);
  });
}

void add_rms_norm_fp8_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "add_rms_norm_fp8";
  expect_shape(out[1].elements() == in[0].elements(), op, "...e, ...e, e -> ...e, ...e");
  add_norm(op, in, out[0], attrs, stream, [&]<typename T>(NormArgs<T>& a) {
    a.bytes = Fp8Bytes(out[1], out[2], scaling_of(in[3], attrs, op));
    launch_norm<T, true, true>(a, are_aligned({a.x, a.y, a.scale, a.x_new}), stream);
  });
}

}  // namespace quintet::QT_GPU
