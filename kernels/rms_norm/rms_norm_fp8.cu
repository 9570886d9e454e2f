// Norms whose results leave as operands of FP8 products: rms_norm.h.

#include "kernels/fp8/cast.cuh"
#include "kernels/rms_norm/norm.cuh"
#include "kernels/rms_norm/rms_norm_gpu.h"

namespace quintet::QT_GPU {
namespace {

/// Rows of a block that leave in E4M3: with the transpose, so many that a column's bytes are a sector of memory.
int fp8_rows(int depth) { return depth <= 2048 ? 32 : 16; }
/// Words from one row to the next in shared memory: an odd number, for store_columns().
__host__ __device__ inline int fp8_stride(int depth) { return depth / 4 | 1; }

template <typename S, bool kResidual, MaskBits kBits>
__global__ void __launch_bounds__(kBlockThreads)
    norm_fp8_kernel(const __grid_constant__ NormArgs<typename S::Type> a,
                    const __grid_constant__ Fp8Bytes to, int block_rows) {
  using T = typename S::Type;
  auto workspace = simt::shared<float>(0, 32);
  const int depth = S::depth(a.depth), stride = fp8_stride(depth);
  auto bytes = simt::shared<uint32_t>(32 * sizeof(float), static_cast<size_t>(block_rows * stride));
  const int64_t first = int64_t{blockIdx.x} * block_rows;
  const float scale = *to.scale;
  uint32_t most = 0;
#pragma unroll 1
  for (int begin = 0; begin < block_rows; begin += S::kRows) {
    const int row_of_block = begin + static_cast<int>(threadIdx.x) / S::kThreads;
    const int64_t row = first + row_of_block;
    if (row >= a.rows) break;  // a whole warp, or the block
    RowTile<S> tile;
    const float r = load_row<S, kResidual, kBits>(a, row, workspace, tile);
    for_row_units<S>(depth, [&](int u, int at) {
      float v[S::kLane];
      norm_unit<S>(a, tile, u, at, r, v);
      pack_words<T>(v, tile.words[u]);  // rounded as if it were stored
      unpack_words<T>(tile.words[u], v);
      uint32_t words[S::kLane / 4];
      round_to_bytes<Float8::e4m3>(v, scale, words, most);
      store_words(to.plain + row * depth + at, words);
      if (to.transposed == nullptr) return;
#pragma unroll
      for (int w = 0; w < S::kLane / 4; ++w) bytes[row_of_block * stride + at / 4 + w] = words[w];
    });
  }
  add_to_amax(most, to.amax);
  if (to.transposed == nullptr) return;
  __syncthreads();
  store_columns(bytes, stride, block_rows, first, a.rows, depth, to.transposed);
}

template <bool kResidual, typename T>
void launch_norm(const NormArgs<T>& a, const Fp8Bytes& to, Stream stream) {
  QT_ASSERT(a.depth <= kMostFp8NormDepth);
  const bool found = for_norm_shape<T, kResidual>(
      a, are_aligned({a.x, a.y, a.scale, a.x_new}), [&]<typename S, MaskBits kBits>() {
        if constexpr (S::kThreads * S::kUnits * S::kLane <= kMostFp8NormDepth) {
          const int rows = fp8_rows(a.depth);
          simt::launch(norm_fp8_kernel<S, kResidual, kBits>,
                       {.grid = static_cast<unsigned>((a.rows + rows - 1) / rows),
                        .block = kBlockThreads,
                        .shared = (32 + static_cast<size_t>(rows * fp8_stride(a.depth))) * 4,
                        .stream = stream},
                       a, to, rows);
        }
      });
  QT_ASSERT(found);
}

}  // namespace

void rms_norm_fp8_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "rms_norm_fp8";
  expect_shape(in[1].elements() == in[0].depth() && out[0].elements() == in[0].elements(), op,
               "...e, e -> ...e");
  if (in[0].elements() == 0) return;
  for_dtype(in[0], op, [&]<typename T>(T) {
    const NormArgs<T> a = norm_args<T>(op, in[0], in[1], attrs);
    launch_norm<false>(a, Fp8Bytes(out[0], out[1], scaling_of(in[2], attrs, op)), stream);
  });
}

void add_rms_norm_fp8_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "add_rms_norm_fp8";
  expect_shape(out[1].elements() == in[0].elements(), op, "...e, ...e, e -> ...e, ...e");
  add_norm(op, in, out[0], attrs, stream, [&]<typename T>(const NormArgs<T>& a) {
    launch_norm<true>(a, Fp8Bytes(out[1], out[2], scaling_of(in[3], attrs, op)), stream);
  });
}

}  // namespace quintet::QT_GPU
