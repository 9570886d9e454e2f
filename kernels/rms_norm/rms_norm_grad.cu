#include <algorithm>

#include "kernels/rms_norm/rms_norm_gpu.h"
#include "kernels/rms_norm/rows.cuh"
#include "kernels/simt/dependent.cuh"
#include "kernels/simt/host/scratch.h"
#include "kernels/vectors/operands_gpu.h"

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
  DropoutMask mask{};
};

/// A row's sum of squares and of its products with the gradient, or a part of them.
struct RowSums {
  float squares = 0, products = 0;
};
// Shared memory of sums over a row's threads: each warp's of two rows.
constexpr int kSumWarps = kBlockThreads / 32;
constexpr size_t kSumBytes = 2 * kSumWarps * sizeof(RowSums);

/// Over the threads of row `row`. Consecutive rows of a block leave their sums in two places, so that one barrier
/// does: who comes to the next but one has passed the next one's barrier, and everyone has read these by then.
template <typename S>
__device__ RowSums row_sums(RowSums mine, int row, simt::Shared<float> workspace) {
  mine = {warp_sum(mine.squares), warp_sum(mine.products)};
  if constexpr (S::kThreads == 32) {
    return mine;
  } else {
    auto sums = workspace + row % 2 * 2 * kSumWarps;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x % 32 == 0) {
      sums[2 * warp] = mine.squares;
      sums[2 * warp + 1] = mine.products;
    }
    __syncthreads();
    RowSums all;
#pragma unroll
    for (int w = 0; w < kSumWarps; ++w) {
      all.squares += sums[2 * w];
      all.products += sums[2 * w + 1];
    }
    return all;
  }
}

/// dx = r (dout scale) - x r^3 mean(dout scale x): the two factors of a row.
struct Factors {
  float r, rescale;
};
__device__ Factors factors(const RowSums& sums, int depth, float eps) {
  const float r = 1.0f / sqrtf(sums.squares / static_cast<float>(depth) + eps);
  return {r, r * r * r * sums.products / static_cast<float>(depth)};
}

/// The rows of a block (kThreads = 256) or of each of its warps: a run of consecutive ones.
template <typename S>
struct RowRun {
  int begin, end;
  __device__ explicit RowRun(int64_t rows) {
    const int64_t groups = int64_t{gridDim.x} * S::kRows;
    const int64_t group = int64_t{blockIdx.x} * S::kRows + threadIdx.x / S::kThreads;
    begin = static_cast<int>(rows * group / groups);
    end = static_cast<int>(rows * (group + 1) / groups);
  }
};

/// The next rows of a warp or block on their way into shared memory: kArrays arrays, kStages rows
/// of each. A thread copies and reads units of its own, so no barrier is needed.
template <typename S, int kArrays, int kStages>
class RowRing {
 public:
  using T = typename S::Type;
  __device__ RowRing(const T* const (&arrays)[kArrays], int depth, int end)
      : depth_(depth), end_(end) {
    for (int i = 0; i < kArrays; ++i) arrays_[i] = arrays[i];
    const int group = static_cast<int>(threadIdx.x) / S::kThreads;
    const size_t row = static_cast<size_t>(depth) * sizeof(T);
    ring_ = simt::shared<unsigned char>(kSumBytes, bytes(depth)) +
            static_cast<int64_t>(group * kStages * kArrays * row);
  }
  /// Bytes of shared memory that a block's rings take, behind the sums.
  static constexpr size_t bytes(int depth) {
    return static_cast<size_t>(S::kRows * kStages * kArrays * depth) * sizeof(T);
  }
  __device__ void start(int row) {
    if (row < end_)
      for (int i = 0; i < kArrays; ++i)
        for_row_units<S>(depth_, [&](int, int at) {
          simt::cp_async_16(place(filled_, i, at), arrays_[i] + int64_t{row} * depth_ + at);
        });
    filled_ = after(filled_);
    simt::cp_async_commit();
  }
  /// Waits for the oldest row that was started.
  __device__ void wait() { simt::cp_async_wait<kStages - 1>(); }
  /// That row's elements from `at` on.
  __device__ void read(int array, int at, float (&v)[S::kLane]) const {
    uint32_t words[4];
    load_words(place(oldest_, array, at), words);
    unpack_words<T>(words, v);
  }
  __device__ void pop() { oldest_ = after(oldest_); }

 private:
  static __device__ int after(int slot) { return slot + 1 == kStages ? 0 : slot + 1; }
  __device__ void* place(int slot, int array, int at) const {
    return static_cast<unsigned char*>(ring_ + ((slot * kArrays + array) * depth_ + at) *
                                                   static_cast<int>(sizeof(T)));
  }
  const T* arrays_[kArrays];
  int depth_, filled_ = 0, oldest_ = 0;
  int end_;
  simt::Shared<unsigned char> ring_;
};

/// Writes dscale's part of the block: that of its warps added in order. The rings are done with: the warps' parts lie there.
template <typename S>
__device__ void store_partial(const float (&sums)[S::kUnits][S::kLane], float* partial, int depth) {
  if constexpr (S::kRows == 1) {
    for_row_units<S>(depth, [&](int u, int at) { store<S::kLane>(partial + at, sums[u]); });
  } else {
    auto parts = simt::shared<float>(kSumBytes, static_cast<size_t>(S::kRows * depth));
    const int group = static_cast<int>(threadIdx.x) / S::kThreads;
    __syncthreads();
    for_row_units<S>(depth, [&](int u, int at) {
      store<S::kLane>(static_cast<float*>(parts + (group * depth + at)), sums[u]);
    });
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < depth; i += kBlockThreads) {
      float total = parts[i];
#pragma unroll
      for (int g = 1; g < S::kRows; ++g) total += parts[g * depth + i];
      partial[i] = total;
    }
  }
}

// Rows under way: as many as let two blocks share a multiprocessor at 1024 elements.
template <typename T, bool kResidual>
inline constexpr int kStages = std::is_same_v<T, float> ? 1
                               : kResidual              ? 2
                                                        : 3;

template <typename S, bool kResidual>
using RingOf = RowRing<S, kResidual ? 3 : 2, kStages<typename S::Type, kResidual>>;

template <typename S, bool kResidual>
__device__ RingOf<S, kResidual> make_ring(const NormGradArgs<typename S::Type>& a, int end) {
  const int depth = S::depth(a.depth);
  if constexpr (kResidual)
    return RingOf<S, kResidual>({a.x, a.dout, a.dx_new}, depth, end);
  else
    return RingOf<S, kResidual>({a.x, a.dout}, depth, end);
}

/// Blocks of a multiprocessor, by elements of a thread: in 16 bits registers are limited to what that many have.
template <typename S, MaskBits kBits>
inline constexpr int kBlocksEach = S::kUnits* S::kLane >= (kBits == MaskBits::each ? 16 : 24) ? 2
                                   : S::kUnits* S::kLane >= 16                                ? 3
                                                                                              : 4;

template <typename S, bool kResidual, MaskBits kBits>
__global__ void __launch_bounds__(kBlockThreads,
                                  sizeof(typename S::Type) == 2 ? kBlocksEach<S, kBits> : 1)
    norm_grad_kernel(const __grid_constant__ NormGradArgs<typename S::Type> a) {
  using T = typename S::Type;
  constexpr int kLane = S::kLane, kAhead = kStages<T, kResidual> - 1;
  const int depth = S::depth(a.depth);
  auto workspace = simt::shared<float>(0, kSumBytes / sizeof(float));
  const RowRun<S> run(a.rows);
  auto ring = make_ring<S, kResidual>(a, run.end);
  for (int i = 0; i < kAhead; ++i) ring.start(run.begin + i);
  float scale[S::kUnits][kLane], sums[S::kUnits][kLane] = {};
  for_row_units<S>(depth, [&](int u, int at) { load_constant<kLane>(a.scale + at, scale[u]); });
  for (int row = run.begin; row < run.end; ++row) {
    ring.start(row + kAhead);
    ring.wait();
    RowSums mine;
    for_row_units<S>(depth, [&](int u, int at) {
      float v[kLane], d[kLane];
      ring.read(0, at, v);
      ring.read(1, at, d);
#pragma unroll
      for (int k = 0; k < kLane; ++k) {
        mine.squares += v[k] * v[k];
        mine.products += v[k] * scale[u][k] * d[k];
      }
    });
    const Factors f = factors(row_sums<S>(mine, row, workspace), depth, a.eps);
    const RowMask<S, kBits> mask(a.mask, row, depth);
    for_row_units<S>(depth, [&](int u, int at) {
      float v[kLane], d[kLane];
      ring.read(0, at, v);
      ring.read(1, at, d);
#pragma unroll
      for (int k = 0; k < kLane; ++k) {
        const float g = d[k] * f.r;
        sums[u][k] += g * v[k];
        d[k] = g * scale[u][k] - v[k] * f.rescale;
      }
      if constexpr (kResidual) {
        ring.read(2, at, v);
#pragma unroll
        for (int k = 0; k < kLane; ++k) d[k] += v[k];
      }
      store_unit(a.dx + int64_t{row} * depth + at, d);
      if constexpr (kBits != MaskBits::none) {
        mask.drop(u, at, d);
        store_unit(a.dy + int64_t{row} * depth + at, d);
      }
    });
    ring.pop();
  }
  simt::start_next();  // the sum of the parts
  simt::cp_async_wait<0>();
  store_partial<S>(sums, a.partials + int64_t{blockIdx.x} * depth, depth);
}

/// Any depth, any alignment: a block a row at a time, its part of dscale in global memory.
template <typename T, bool kResidual>
__global__ void __launch_bounds__(kBlockThreads)
    plain_norm_grad_kernel(const __grid_constant__ NormGradArgs<T> a) {
  auto workspace = simt::shared<float>(0, 32);
  const RowRun<RowShape<T, kBlockThreads, 1>> run(a.rows);
  float* partial = a.partials + int64_t{blockIdx.x} * a.depth;
  const int first = static_cast<int>(threadIdx.x);
  for (int i = first; i < a.depth; i += kBlockThreads) partial[i] = 0;
  for (int row = run.begin; row < run.end; ++row) {
    const int64_t at = int64_t{row} * a.depth;
    const bool drops = kResidual && a.dy != nullptr;
    float squares = 0, products = 0;
    for (int i = first; i < a.depth; i += kBlockThreads) {
      const float v = simt::to_float(a.x[at + i]);
      squares += v * v;
      products += v * a.scale[i] * simt::to_float(a.dout[at + i]);
    }
    const Factors f =
        factors({block_sum(squares, workspace), block_sum(products, workspace)}, a.depth, a.eps);
    for (int i = first; i < a.depth; i += kBlockThreads) {
      const float v = simt::to_float(a.x[at + i]), g = simt::to_float(a.dout[at + i]) * f.r;
      partial[i] += g * v;
      float d = g * a.scale[i] - v * f.rescale;
      if constexpr (kResidual) d += simt::to_float(a.dx_new[at + i]);
      a.dx[at + i] = simt::from_float<T>(d);
      if (drops)
        a.dy[at + i] = simt::from_float<T>(
            dropped(a.mask.rule.scale, (a.mask.template bits<1>(row, i) & 1u) != 0, d));
    }
  }
}

// A block of the sum over partials: 32 columns, 32 threads each.
constexpr int kSumColumns = 32, kSumThreads = 32;

/// dscale[c] = addend[c] (null: 0) + sum of partials[., c]: each of a column's threads adds every 32nd
/// part, then those sums are added in order.
__global__ void __launch_bounds__(kSumColumns* kSumThreads)
    sum_partials(const float* partials, int parts, int depth, const float* addend, float* dscale) {
  auto workspace = simt::shared<float>(0, kSumColumns * kSumThreads);
  const int lane = static_cast<int>(threadIdx.x) % kSumColumns;
  const int part = static_cast<int>(threadIdx.x) / kSumColumns;
  const int column = static_cast<int>(blockIdx.x) * kSumColumns + lane;
  float sum = 0;
  simt::wait_for_previous();
  if (column < depth) {
#pragma unroll 4
    for (int p = part; p < parts; p += kSumThreads) sum += partials[int64_t{p} * depth + column];
  }
  workspace[threadIdx.x] = sum;
  __syncthreads();
  if (part != 0 || column >= depth) return;
  float total = 0;
#pragma unroll
  for (int p = 0; p < kSumThreads; ++p) total += workspace[p * kSumColumns + lane];
  dscale[column] = addend == nullptr ? total : addend[column] + total;
}

}  // namespace

void sum_partials_gpu(const float* partials, int64_t parts, int32_t depth, const void* addend,
                      float* sums, Stream stream) {
  simt::launch(sum_partials,
               {.grid = static_cast<unsigned>((depth + kSumColumns - 1) / kSumColumns),
                .block = kSumColumns * kSumThreads,
                .shared = kSumColumns * kSumThreads * sizeof(float),
                .stream = stream,
                .early = true},
               partials, static_cast<int>(parts), static_cast<int>(depth),
               static_cast<const float*>(addend), sums);
}

namespace {

template <typename T, bool kResidual>
void launch_norm_grad(NormGradArgs<T> a, const void* addend, float* dscale, bool vector,
                      Stream stream) {
  QT_ASSERT(a.rows < int64_t{1} << 31);  // counted in 32 bits
  const int64_t multiprocessors = simt::device().multiprocessors;
  const auto with_partials = [&](int64_t blocks, const auto& launch) {
    const simt::Scratch partials(blocks * a.depth * static_cast<int64_t>(sizeof(float)), stream);
    a.partials = partials.data<float>();
    launch(static_cast<unsigned>(blocks));
    sum_partials_gpu(a.partials, blocks, a.depth, addend, dscale, stream);
  };
  const auto run = [&]<typename S, MaskBits kBits>() {
    with_partials(std::clamp<int64_t>((a.rows + S::kRows - 1) / S::kRows, 1,
                                      kBlocksEach<S, kBits> * multiprocessors),
                  [&](unsigned blocks) {
                    simt::launch(norm_grad_kernel<S, kResidual, kBits>,
                                 {.grid = blocks,
                                  .block = kBlockThreads,
                                  .shared = kSumBytes + RingOf<S, kResidual>::bytes(a.depth),
                                  .stream = stream},
                                 a);
                  });
  };
  bool found = false;
  for_mask_bits(
      a.dy != nullptr, a.mask, [&]<MaskBits kBits>(std::integral_constant<MaskBits, kBits>) {
        if constexpr (kResidual || kBits == MaskBits::none)
          found = for_row_shape<T, 32 / kLanes<T>, kBits != MaskBits::each>(
              a.depth, vector, [&]<typename S>(S) { run.template operator()<S, kBits>(); });
      });
  if (!found)
    with_partials(std::clamp<int64_t>(a.rows, 1, 2 * multiprocessors), [&](unsigned blocks) {
      simt::launch(plain_norm_grad_kernel<T, kResidual>,
                   {.grid = blocks, .block = kBlockThreads, .shared = 128, .stream = stream}, a);
    });
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
    launch_norm_grad<T, false>(a, addend_of(in, 3, 1), elements<float>(out[1], op, "dscale"),
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
    const StoredDropoutMask made = has_dropout ? make_mask(op, in[0], attrs, stream)
                                               : StoredDropoutMask{simt::Scratch(0, stream), {}};
    a.mask = made.mask;
    launch_norm_grad<T, true>(a, addend_of(in, 4, 2), elements<float>(out[2], op, "dscale"),
                              are_aligned({a.x, a.scale, a.dout, a.dx_new, a.dx, a.dy}), stream);
  });
}

}  // namespace quintet::QT_GPU
