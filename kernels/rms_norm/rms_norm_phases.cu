// Rows that are sharded over ranks: sums over a rank's block of each row, a warp a row; then what follows
// from the sums over whole rows.

#include <algorithm>

#include "kernels/rms_norm/rms_norm_gpu.h"
#include "kernels/rms_norm/rows.cuh"
#include "kernels/simt/host/scratch.h"
#include "kernels/vectors/operands_gpu.h"

namespace quintet::QT_GPU {
namespace {

constexpr int kRowsOfBlock = kBlockThreads / 32;

template <typename T>
struct PhaseArgs {
  const T *x, *dy = nullptr;
  const float* scale = nullptr;
  const float *squares = nullptr, *products = nullptr;            // [rows] of whole rows
  T* out = nullptr;                                               // y or dx
  float *partial_squares = nullptr, *partial_products = nullptr;  // [rows] of the block
  float* partials = nullptr;                                      // [blocks, depth] parts of dscale
  int64_t rows;
  int32_t depth, whole_depth;
  float eps;

  __device__ float reciprocal_root(int64_t row) const {
    return 1.0f / sqrtf(squares[row] / static_cast<float>(whole_depth) + eps);
  }
};

/// The row of this warp; may lie behind the last.
QT_DEVICE int64_t row_of_warp() { return int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / 32; }

template <typename T, int kLane>
__global__ void __launch_bounds__(kBlockThreads)
    norm_sums_kernel(const __grid_constant__ PhaseArgs<T> a) {
  const int64_t row = row_of_warp();
  if (row >= a.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float squares = 0, products = 0;
  for (int i = lane * kLane; i < a.depth; i += 32 * kLane) {
    float v[kLane];
    load<kLane>(a.x + row * a.depth + i, v);
#pragma unroll
    for (int k = 0; k < kLane; ++k) squares += v[k] * v[k];
    if (a.dy == nullptr) continue;
    float d[kLane], scale[kLane];
    load<kLane>(a.dy + row * a.depth + i, d);
    load<kLane>(a.scale + i, scale);
#pragma unroll
    for (int k = 0; k < kLane; ++k) products += v[k] * scale[k] * d[k];
  }
  squares = warp_sum(squares);
  products = warp_sum(products);
  if (lane > 0) return;
  a.partial_squares[row] = squares;
  if (a.dy != nullptr) a.partial_products[row] = products;
}

template <typename T, int kLane>
__global__ void __launch_bounds__(kBlockThreads)
    norm_apply_kernel(const __grid_constant__ PhaseArgs<T> a) {
  const int64_t row = row_of_warp();
  if (row >= a.rows) return;
  const float r = a.reciprocal_root(row);
  for (int i = static_cast<int>(threadIdx.x) % 32 * kLane; i < a.depth; i += 32 * kLane) {
    float v[kLane], scale[kLane];
    load<kLane>(a.x + row * a.depth + i, v);
    load<kLane>(a.scale + i, scale);
#pragma unroll
    for (int k = 0; k < kLane; ++k) v[k] = v[k] * r * scale[k];
    store<kLane>(a.out + row * a.depth + i, v);
  }
}

/// A block takes consecutive rows, a thread the same columns of all of them.
template <typename T, int kLane>
__global__ void __launch_bounds__(kBlockThreads)
    norm_grad_apply_kernel(const __grid_constant__ PhaseArgs<T> a) {
  const int64_t begin = a.rows * blockIdx.x / gridDim.x;
  const int64_t end = a.rows * (blockIdx.x + 1) / gridDim.x;
  for (int i = static_cast<int>(threadIdx.x) * kLane; i < a.depth; i += kBlockThreads * kLane) {
    float scale[kLane], sums[kLane] = {};
    load<kLane>(a.scale + i, scale);
    for (int64_t row = begin; row < end; ++row) {
      const float r = a.reciprocal_root(row);
      const float rescale = r * r * r * a.products[row] / static_cast<float>(a.whole_depth);
      float v[kLane], d[kLane];
      load<kLane>(a.x + row * a.depth + i, v);
      load<kLane>(a.dy + row * a.depth + i, d);
#pragma unroll
      for (int k = 0; k < kLane; ++k) {
        const float g = d[k] * r;
        sums[k] += g * v[k];
        d[k] = g * scale[k] - v[k] * rescale;
      }
      store<kLane>(a.out + row * a.depth + i, d);
    }
    store<kLane>(a.partials + int64_t{blockIdx.x} * a.depth + i, sums);
  }
}

/// The arguments that all phases have, from x.
template <typename T>
PhaseArgs<T> args_of(const View& x, const Attrs& attrs) {
  const int64_t whole = x.rank == 0 ? 1 : x.global[static_cast<size_t>(x.rank - 1)];
  QT_ASSERT(whole < int64_t{1} << 30);  // columns are counted in 32 bits
  return {.x = elements<T>(x, "rms_norm", "x"),
          .rows = x.rows(),
          .depth = static_cast<int32_t>(x.depth()),
          .whole_depth = static_cast<int32_t>(whole),
          .eps = static_cast<float>(attrs.get_or<double>("eps", 1e-6))};
}

/// Calls body(Count<elements of a unit>).
template <typename T, typename Body>
void for_lanes(const PhaseArgs<T>& a, const Body& body) {
  if (a.depth % kLanes<T> == 0 && are_aligned({a.x, a.dy, a.scale, a.out}))
    body(Count<kLanes<T>>{});
  else
    body(Count<1>{});
}

unsigned blocks_of(int64_t rows) {
  return static_cast<unsigned>((rows + kRowsOfBlock - 1) / kRowsOfBlock);
}

template <typename T>
void launch_sums(const PhaseArgs<T>& a, Stream stream) {
  if (a.rows == 0) return;
  for_lanes(a, [&]<int kLane>(Count<kLane>) {
    simt::launch(norm_sums_kernel<T, kLane>,
                 {.grid = blocks_of(a.rows), .block = kBlockThreads, .stream = stream}, a);
  });
}

}  // namespace

void rms_norm_squares_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  for_dtype(in[0], "rms_norm", [&]<typename T>(T) {
    PhaseArgs<T> a = args_of<T>(in[0], attrs);
    a.partial_squares = elements<float>(out[0], "rms_norm", "squares");
    launch_sums(a, stream);
  });
}

void rms_norm_products_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  for_dtype(in[0], "rms_norm_grad", [&]<typename T>(T) {
    PhaseArgs<T> a = args_of<T>(in[0], attrs);
    a.scale = elements<float>(in[1], "rms_norm_grad", "scale");
    a.dy = elements<T>(in[2], "rms_norm_grad", "dy");
    a.partial_squares = elements<float>(out[0], "rms_norm_grad", "squares");
    a.partial_products = elements<float>(out[1], "rms_norm_grad", "products");
    launch_sums(a, stream);
  });
}

void rms_norm_apply_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  if (in[0].elements() == 0) return;
  for_dtype(in[0], "rms_norm", [&]<typename T>(T) {
    PhaseArgs<T> a = args_of<T>(in[0], attrs);
    a.scale = elements<float>(in[1], "rms_norm", "scale");
    a.squares = elements<float>(in[2], "rms_norm", "squares");
    a.out = elements<T>(out[0], "rms_norm", "y");
    for_lanes(a, [&]<int kLane>(Count<kLane>) {
      simt::launch(norm_apply_kernel<T, kLane>,
                   {.grid = blocks_of(a.rows), .block = kBlockThreads, .stream = stream}, a);
    });
  });
}

void rms_norm_grad_apply_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  if (in[0].depth() == 0) return;
  for_dtype(in[0], "rms_norm_grad", [&]<typename T>(T) {
    PhaseArgs<T> a = args_of<T>(in[0], attrs);
    a.scale = elements<float>(in[1], "rms_norm_grad", "scale");
    a.dy = elements<T>(in[2], "rms_norm_grad", "dy");
    a.squares = elements<float>(in[3], "rms_norm_grad", "squares");
    a.products = elements<float>(in[4], "rms_norm_grad", "products");
    a.out = elements<T>(out[0], "rms_norm_grad", "dx");
    const auto blocks =
        std::clamp<int64_t>(a.rows / kRowsOfBlock, 1, 4 * simt::device().multiprocessors);
    const simt::Scratch partials(blocks * a.depth * static_cast<int64_t>(sizeof(float)), stream);
    a.partials = partials.data<float>();
    for_lanes(a, [&]<int kLane>(Count<kLane>) {
      simt::launch(
          norm_grad_apply_kernel<T, kLane>,
          {.grid = static_cast<unsigned>(blocks), .block = kBlockThreads, .stream = stream}, a);
    });
    sum_partials_gpu(a.partials, blocks, a.depth, nullptr,
                     elements<float>(out[1], "rms_norm_grad", "dscale"), stream);
  });
}

}  // namespace quintet::QT_GPU
