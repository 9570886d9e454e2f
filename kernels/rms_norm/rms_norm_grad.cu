#include <algorithm>

#include "kernels/elementwise/operands_gpu.h"
#include "kernels/rms_norm/rms_norm_gpu.h"
#include "kernels/rms_norm/rows.cuh"
#include "kernels/simt/scratch.h"

namespace quintet::QT_GPU {
namespace {

template <typename T>
struct NormGradArgs {
  const T* x;
  const float* scale;
  const T* dout;
  const T* dx_new = nullptr;  // added to dx, if any
  T* dx;
  T* dy = nullptr;  // dropout(dx), if any
  float* partials;  // [blocks, depth]: each block's part of dscale
  int64_t rows;
  int32_t depth;
  float eps;
  int64_t length = 1;  // rows that share a mask
  DropoutRule rule{};
};

/// dx = r (dout scale) - x r^3 mean(dout scale x): the two factors of a row.
struct Factors {
  float r, pull;
};
__device__ Factors factors(float squares, float products, int depth, float eps) {
  const float r = 1.0f / sqrtf(squares / static_cast<float>(depth) + eps);
  return {r, r * r * r * products / static_cast<float>(depth)};
}

/// The rows of a block (kThreads = 256) or of each of its warps: a run of consecutive ones.
template <typename S>
struct RowRun {
  int64_t begin, end;
  __device__ explicit RowRun(int64_t rows) {
    const int64_t groups = int64_t{gridDim.x} * S::kRows;
    const int64_t group = int64_t{blockIdx.x} * S::kRows + threadIdx.x / S::kThreads;
    begin = rows * group / groups;
    end = rows * (group + 1) / groups;
  }
};

/// Writes dscale's part of the block: that of its warps added in order.
template <typename S>
__device__ void store_partial(const float (&sums)[S::kUnits][S::kLane], float* partial, int depth) {
  if constexpr (S::kRows == 1) {
    for_row_units<S>(depth, [&](int u, int at) { store<S::kLane>(partial + at, sums[u]); });
  } else {
    auto total = simt::shared<float>(128, static_cast<size_t>(depth));
    for (int group = 0; group < S::kRows; ++group) {
      if (static_cast<int>(threadIdx.x) / S::kThreads == group)
        for_row_units<S>(depth, [&](int u, int at) {
#pragma unroll
          for (int k = 0; k < S::kLane; ++k)
            total[at + k] = group == 0 ? sums[u][k] : total[at + k] + sums[u][k];
        });
      __syncthreads();
    }
    for (int i = static_cast<int>(threadIdx.x); i < depth; i += kBlockThreads)
      partial[i] = total[i];
  }
}

template <typename S, bool kResidual>
__global__ void __launch_bounds__(kBlockThreads)
    norm_grad_kernel(const __grid_constant__ NormGradArgs<typename S::Type> a) {
  using T = typename S::Type;
  auto room = simt::shared<float>(0, 32);
  const RowRun<S> run(a.rows);
  float sums[S::kUnits][S::kLane] = {};
  RowMask<S> mask;
  for (int64_t row = run.begin; row < run.end; ++row) {
    HeldRow<S> x, dout, dx_new;
    hold<S>(a.x + row * a.depth, a.depth, x);
    hold<S>(a.dout + row * a.depth, a.depth, dout);
    if constexpr (kResidual) hold<S>(a.dx_new + row * a.depth, a.depth, dx_new);
    float squares = 0, products = 0;
    for_row_units<S>(a.depth, [&](int u, int at) {
      float v[S::kLane], d[S::kLane], scale[S::kLane];
      unpack_words<T>(x.words[u], v);
      unpack_words<T>(dout.words[u], d);
      load<S::kLane>(a.scale + at, scale);
#pragma unroll
      for (int k = 0; k < S::kLane; ++k) {
        squares += v[k] * v[k];
        products += v[k] * scale[k] * d[k];
      }
    });
    squares = row_sum<S>(squares, room);
    products = row_sum<S>(products, room);
    const Factors f = factors(squares, products, a.depth, a.eps);
    const uint32_t bits =
        kResidual && a.dy != nullptr ? mask.of(a.rule, row, a.length, a.depth) : 0;
    for_row_units<S>(a.depth, [&](int u, int at) {
      float v[S::kLane], d[S::kLane], scale[S::kLane];
      unpack_words<T>(x.words[u], v);
      unpack_words<T>(dout.words[u], d);
      load<S::kLane>(a.scale + at, scale);
#pragma unroll
      for (int k = 0; k < S::kLane; ++k) {
        const float g = d[k] * f.r;
        sums[u][k] += g * v[k];
        d[k] = g * scale[k] - v[k] * f.pull;
      }
      if constexpr (kResidual) {
        unpack_words<T>(dx_new.words[u], v);
#pragma unroll
        for (int k = 0; k < S::kLane; ++k) d[k] += v[k];
      }
      store<S::kLane>(a.dx + row * a.depth + at, d);
      if constexpr (kResidual)
        if (a.dy != nullptr) {
#pragma unroll
          for (int k = 0; k < S::kLane; ++k)
            d[k] = dropped(a.rule, bits >> (u * S::kLane + k) & 1u, d[k]);
          store<S::kLane>(a.dy + row * a.depth + at, d);
        }
    });
  }
  store_partial<S>(sums, a.partials + int64_t{blockIdx.x} * a.depth, a.depth);
}

/// Any depth, any alignment: a block a row at a time, its part of dscale in global memory.
template <typename T, bool kResidual>
__global__ void __launch_bounds__(kBlockThreads)
    plain_norm_grad_kernel(const __grid_constant__ NormGradArgs<T> a) {
  auto room = simt::shared<float>(0, 32);
  const RowRun<RowShape<T, kBlockThreads, 1>> run(a.rows);
  float* partial = a.partials + int64_t{blockIdx.x} * a.depth;
  const int first = static_cast<int>(threadIdx.x);
  for (int i = first; i < a.depth; i += kBlockThreads) partial[i] = 0;
  for (int64_t row = run.begin; row < run.end; ++row) {
    const int64_t at = row * a.depth;
    const bool drops = kResidual && a.dy != nullptr;
    const uint64_t number = drops ? a.rule.places.first(row) : 0;
    float squares = 0, products = 0;
    for (int i = first; i < a.depth; i += kBlockThreads) {
      const float v = simt::to_float(a.x[at + i]);
      squares += v * v;
      products += v * a.scale[i] * simt::to_float(a.dout[at + i]);
    }
    squares = block_sum(squares, room);
    products = block_sum(products, room);
    const Factors f = factors(squares, products, a.depth, a.eps);
    for (int i = first; i < a.depth; i += kBlockThreads) {
      const float v = simt::to_float(a.x[at + i]), g = simt::to_float(a.dout[at + i]) * f.r;
      partial[i] += g * v;
      float d = g * a.scale[i] - v * f.pull;
      if constexpr (kResidual) d += simt::to_float(a.dx_new[at + i]);
      a.dx[at + i] = simt::from_float<T>(d);
      if (drops)
        a.dy[at + i] = simt::from_float<T>(
            dropped(a.rule, is_kept(a.rule, number + static_cast<uint64_t>(i)), d));
    }
  }
}

// A block of the sum over partials: 32 columns, 8 threads each.
constexpr int kSumColumns = 32, kSumThreads = 8;

/// dscale[c] = sum of partials[., c]: each of 8 threads a column adds every eighth part, then those
/// sums are added in order.
__global__ void __launch_bounds__(kBlockThreads)
    sum_partials(const float* partials, int parts, int depth, float* dscale) {
  auto room = simt::shared<float>(0, kSumColumns * kSumThreads);
  const int lane = static_cast<int>(threadIdx.x) % kSumColumns;
  const int part = static_cast<int>(threadIdx.x) / kSumColumns;
  const int column = static_cast<int>(blockIdx.x) * kSumColumns + lane;
  float sum = 0;
  if (column < depth)
    for (int p = part; p < parts; p += kSumThreads) sum += partials[int64_t{p} * depth + column];
  room[threadIdx.x] = sum;
  __syncthreads();
  if (part != 0 || column >= depth) return;
  float total = 0;
  for (int p = 0; p < kSumThreads; ++p) total += room[p * kSumColumns + lane];
  dscale[column] = total;
}

// Blocks of a multiprocessor: registers allow two.
constexpr int64_t kBlocksEach = 2;

template <typename T, bool kResidual>
void launch_norm_grad(NormGradArgs<T> a, float* dscale, bool vector, Stream stream) {
  const int64_t most = kBlocksEach * simt::device().multiprocessors;
  const auto with_partials = [&](int64_t blocks, const auto& launch) {
    const simt::Scratch partials(blocks * a.depth * static_cast<int64_t>(sizeof(float)), stream);
    a.partials = partials.data<float>();
    launch(static_cast<unsigned>(blocks));
    simt::launch(sum_partials,
                 {.grid = static_cast<unsigned>((a.depth + kSumColumns - 1) / kSumColumns),
                  .block = kBlockThreads,
                  .shared = kBlockThreads * sizeof(float),
                  .stream = stream},
                 a.partials, static_cast<int>(blocks), a.depth, dscale);
  };
  const auto run = [&]<typename S>(S) {
    with_partials(std::clamp<int64_t>((a.rows + S::kRows - 1) / S::kRows, 1, most),
                  [&](unsigned blocks) {
                    const size_t row = S::kRows == 1 ? 0 : static_cast<size_t>(a.depth);
                    simt::launch(norm_grad_kernel<S, kResidual>,
                                 {.grid = blocks,
                                  .block = kBlockThreads,
                                  .shared = 128 + row * sizeof(float),
                                  .stream = stream},
                                 a);
                  });
  };
  const int units = a.depth / kLanes<T>;
  constexpr int kMost = 32 / kLanes<T>;  // a thread holds at most 32 elements
  if (!vector || a.depth % kLanes<T> != 0 || units > kBlockThreads * kMost) {
    with_partials(std::clamp<int64_t>(a.rows, 1, most), [&](unsigned blocks) {
      simt::launch(plain_norm_grad_kernel<T, kResidual>,
                   {.grid = blocks, .block = kBlockThreads, .shared = 128, .stream = stream}, a);
    });
  } else if (units <= 32 * kMost / 2) {
    run(RowShape<T, 32, kMost / 2>{});
  } else if (units <= 32 * kMost) {
    run(RowShape<T, 32, kMost>{});
  } else if (units <= kBlockThreads * kMost / 4) {
    run(RowShape<T, kBlockThreads, kMost / 4>{});
  } else if (units <= kBlockThreads * kMost / 2) {
    run(RowShape<T, kBlockThreads, kMost / 2>{});
  } else {
    run(RowShape<T, kBlockThreads, kMost>{});
  }
}

int32_t checked_depth(int64_t depth) {
  QT_ASSERT(depth < int64_t{1} << 30);  // columns are counted in 32 bits
  return static_cast<int32_t>(depth);
}

}  // namespace

void rms_norm_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "rms_norm_grad";
  const int64_t n = in[0].elements(), depth = in[0].depth();
  expect_shape(in[1].elements() == depth && in[2].elements() == n && out[0].elements() == n &&
                   out[1].elements() == depth,
               op, "...e, e, ...e -> ...e, e");
  if (depth == 0) return;
  for_dtype(in[0], op, [&]<typename T>(T) {
    NormGradArgs<T> a{.x = elements<T>(in[0], op, "x"),
                      .scale = elements<float>(in[1], op, "scale"),
                      .dout = elements<T>(in[2], op, "dy"),
                      .dx = elements<T>(out[0], op, "dx"),
                      .partials = nullptr,
                      .rows = in[0].rows(),
                      .depth = checked_depth(depth),
                      .eps = static_cast<float>(attrs.get_or<double>("eps", 1e-6))};
    launch_norm_grad<T, false>(a, elements<float>(out[1], op, "dscale"),
                               are_aligned({a.x, a.scale, a.dout, a.dx}), stream);
  });
}

void add_rms_norm_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "add_rms_norm_grad";
  const int64_t n = in[0].elements(), depth = in[0].depth();
  const bool has_dropout = attrs.get_or<double>("rate", 0) != 0;
  expect_shape(in[1].elements() == depth && in[2].elements() == n && in[3].elements() == n &&
                   out[0].elements() == n && out[1].absent() == !has_dropout &&
                   out[2].elements() == depth,
               op, "...e, e, ...e, ...e -> ...e, ...e?, e");
  if (depth == 0) return;
  for_dtype(in[0], op, [&]<typename T>(T) {
    NormGradArgs<T> a{.x = elements<T>(in[0], op, "x_new"),
                      .scale = elements<float>(in[1], op, "scale"),
                      .dout = elements<T>(in[2], op, "dout"),
                      .dx_new = elements<T>(in[3], op, "dx_new"),
                      .dx = elements<T>(out[0], op, "dx"),
                      .dy = optional_elements<T>(out[1], op, "dy"),
                      .partials = nullptr,
                      .rows = in[0].rows(),
                      .depth = checked_depth(depth),
                      .eps = static_cast<float>(attrs.get_or<double>("eps", 1e-6))};
    if (has_dropout) a.rule = dropout_rule(op, in[0], attrs);
    if (in[0].rank >= 2) a.length = in[0].size(-2);
    launch_norm_grad<T, true>(a, elements<float>(out[2], op, "dscale"),
                              are_aligned({a.x, a.scale, a.dout, a.dx_new, a.dx, a.dy}), stream);
  });
}

}  // namespace quintet::QT_GPU
