#include <algorithm>
#include <cmath>

#include "kernels/cross_entropy/rows.cuh"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU::cross_entropy {
namespace {

constexpr int kThreads = 512;
constexpr float kLog2E = 1.4426950408889634f;

/// e^(x - origin). For bf16 logits an error of 2^-22 is far below their rounding.
template <typename T>
QT_DEVICE float exponential(float x, float origin) {
  if constexpr (std::is_same_v<T, float>)
    return expf(x - origin);
  else
    return simt::exp2_approx((x - origin) * kLog2E);
}

/// Reductions over a row's threads: a block, or the kBlocks blocks of a cluster that share the row.
/// Every thread gets the same bits.
template <int kBlocks>
class RowReduction {
 public:
  __device__ RowReduction()
      : workspace_(simt::shared<float>(0, 32)), results_(simt::shared<float>(128, 4)) {}

  __device__ float block_max(float v) { return QT_GPU::block_max(v, workspace_); }
  __device__ float block_sum(float v) { return QT_GPU::block_sum(v, workspace_); }
  /// Puts a block's result where the others of the cluster find it after sync().
  __device__ void publish(int slot, float v) {
    if (kBlocks > 1 && threadIdx.x == 0) results_[slot] = v;
  }
  __device__ void sync() {
    if constexpr (kBlocks > 1) simt::cluster_sync();
  }
  /// What block `rank` published.
  __device__ float of(int slot, unsigned rank) const {
    return *simt::map_cluster(results_ + slot, rank);
  }

 private:
  simt::Shared<float> workspace_, results_;
};

/// A row's softmax, on all its threads.
struct Softmax {
  float largest, exponentials, sum;
  bool is_first_largest;  // the target's logit, at the first place where it occurs
};

/// What becomes of the logits: softmax * exp(logit - lse) - minus, and less at the target.
struct RowGradient {
  float lse, softmax, minus, at_target;
};

struct Target {
  int32_t column;  // of this block; -1: elsewhere, or no token
  float logit, weight;
};

template <typename T>
__device__ Target read_target(const Rows<T>& rows, int64_t row, bool reports) {
  Target t{rows.targets[row], 0, rows.weights[row]};
  if (t.column < 0 || t.column >= rows.all_columns) {
    if (t.weight != 0 && reports)
      simt::raise_fault(rows.fault, FaultCode::kTarget, t.column, rows.first_token + row,
                        rows.all_columns);
    t.column = -1;
    t.weight = 0;
    return t;
  }
  t.column -= rows.first_column;
  if (t.column < 0 || t.column >= rows.vocabulary)
    t.column = -1;
  else
    t.logit = simt::to_float(rows.logits[row * rows.stride + t.column]);
  return t;
}

/// Stores the token's losses (thread `writes`) and returns how its logits become a gradient.
template <typename T>
__device__ RowGradient finish_row(const Rows<T>& rows, int64_t row, const Target& target,
                                  const Softmax& s, bool writes) {
  const LossRule& rule = rows.rule;
  const float lse = s.largest + logf(s.exponentials);
  const float log_probability = target.column < 0 ? 0 : target.logit - lse;
  const float z_part = rule.z == 0 ? 0 : rule.z * lse * lse;
  if (writes) {
    if (rows.log_probabilities != nullptr) rows.log_probabilities[row] = log_probability;
    float xent = -(rule.on - rule.off) * log_probability;
    if (rule.off != 0) xent -= rule.off * (s.sum - static_cast<float>(rows.all_columns) * lse);
    const float w = target.weight;
    // The block that has the target counts the token.
    rows.losses[row] = w == 0 || target.column < 0
                           ? TokenLoss{0, 0, 0}
                           : TokenLoss{w * (xent - rule.constant + z_part), w * z_part,
                                       s.is_first_largest ? 1.0f : 0.0f};
  }
  return {lse, target.weight * (1 + 2 * rule.z * lse), target.weight * rule.off,
          target.weight * (rule.on - rule.off)};
}

/// At any column but the target's, where g.at_target comes off too.
template <typename T>
QT_DEVICE float gradient_at(const RowGradient& g, float logit) {
  return g.softmax * exponential<T>(logit, g.lse) - g.minus;
}

/// A token without weight whose log-probability nobody wants: no softmax, a gradient of 0.
template <typename T>
QT_DEVICE bool is_idle(const Rows<T>& rows, const Target& target) {
  return target.weight == 0 && rows.log_probabilities == nullptr;
}

template <typename T>
__device__ void write_idle(const Rows<T>& rows, int64_t row, int64_t first, int64_t threads) {
  if (first == 0) rows.losses[row] = {0, 0, 0};
  if (!rows.has_gradient) return;
  constexpr uint32_t kZeros[4] = {};
  const int64_t units = (rows.vocabulary + kLanes<T> - 1) / kLanes<T>;
  T* logits = rows.logits + row * rows.stride;
  for (int64_t u = first; u < units; u += threads) store_words(logits + u * kLanes<T>, kZeros);
}

/// Elements of a unit from `count` on become -infinity.
template <typename T>
__device__ void pad_unit(uint32_t (&words)[4], int count) {
  float v[kLanes<T>];
  unpack_words<T>(words, v);
#pragma unroll
  for (int k = 0; k < kLanes<T>; ++k)
    if (k >= count) v[k] = -INFINITY;
  pack_words<T>(v, words);
}

/// Joins the softmax sums of a cluster's blocks, each relative to its own origin, in order of rank.
template <int kBlocks>
__device__ void join_blocks(RowReduction<kBlocks>& reduction, Softmax& s) {
  reduction.publish(0, s.largest);
  reduction.publish(1, s.exponentials);
  reduction.publish(2, s.sum);
  reduction.sync();
  s = {-INFINITY, 0, 0, false};
  for (unsigned r = 0; r < kBlocks; ++r) s.largest = fmaxf(s.largest, reduction.of(0, r));
  for (unsigned r = 0; r < kBlocks; ++r) {
    const float largest = reduction.of(0, r);
    const float from = largest == -INFINITY ? 0 : largest;
    const float part = reduction.of(1, r);
    if (part != 0) s.exponentials += part * expf(from - s.largest);  // 0: padding alone
    s.sum += reduction.of(2, r);
  }
}

/// The row lies in the registers of a block, or of a cluster of kBlocks: read once, written once.
template <typename T, int kUnits, int kBlocks>
__global__ void __launch_bounds__(kThreads, 2) held_rows(const __grid_constant__ Rows<T> rows) {
  constexpr int kLane = kLanes<T>;
#if !QT_SM90A
  if constexpr (kBlocks > 1) return;  // never launched: only sm_90 has clusters
#endif
  RowReduction<kBlocks> reduction;
  constexpr int kRowThreads = kBlocks * kThreads;
  const unsigned rank = kBlocks > 1 ? simt::cluster_rank() : 0;
  const int64_t row = blockIdx.x / kBlocks;
  const int first = static_cast<int>(rank * kThreads + threadIdx.x);
  T* logits = rows.logits + row * rows.stride;
  const Target target = read_target(rows, row, first == 0);
  if (is_idle(rows, target)) {
    write_idle(rows, row, first, int64_t{kBlocks} * blockDim.x);
    return;
  }
  uint32_t held[kUnits][4];
  const auto for_held = [&](const auto& body) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int column = (first + u * kRowThreads) * kLane;
      if (column < rows.vocabulary) body(held[u], column);
    }
  };
  for_held([&](auto& words, int column) { load_words(logits + column, words); });
  // Columns beyond the vocabulary, in the row's last unit, are padding: never the largest, e^x = 0.
  for_held([&](auto& words, int column) {
    if (column + kLane > rows.vocabulary) pad_unit<T>(words, rows.vocabulary - column);
  });
  float largest = -INFINITY;
  for_held([&](const auto& words, int) {
    float v[kLane];
    unpack_words<T>(words, v);
#pragma unroll
    for (int k = 0; k < kLane; ++k) largest = fmaxf(largest, v[k]);
  });
  Softmax s{};
  s.largest = reduction.block_max(largest);
  // A block whose every logit is NaN or padding: any origin will do.
  const float origin = s.largest == -INFINITY ? 0 : s.largest;
  for_held([&](const auto& words, int) {
    float v[kLane];
    unpack_words<T>(words, v);
#pragma unroll
    for (int k = 0; k < kLane; ++k) s.exponentials += exponential<T>(v[k], origin);
  });
  s.exponentials = reduction.block_sum(s.exponentials);
  if (rows.rule.off != 0) {
    for_held([&](const auto& words, int column) {
      float v[kLane];
      unpack_words<T>(words, v);
#pragma unroll
      for (int k = 0; k < kLane; ++k)
        if (column + k < rows.vocabulary) s.sum += v[k];
    });
    s.sum = reduction.block_sum(s.sum);
  }
  if constexpr (kBlocks > 1) join_blocks(reduction, s);
  // Few tokens are right: only then it matters whether the largest logit also occurs earlier.
  s.is_first_largest = target.logit == s.largest;
  if (s.is_first_largest) {
    float earlier = 0;
    for_held([&](const auto& words, int column) {
      float v[kLane];
      unpack_words<T>(words, v);
#pragma unroll
      for (int k = 0; k < kLane; ++k)
        if (v[k] == s.largest && column + k < target.column) earlier = 1;
    });
    earlier = reduction.block_sum(earlier);
    reduction.publish(3, earlier);
    reduction.sync();
    if constexpr (kBlocks > 1)
      for (unsigned r = 0; r < kBlocks; ++r) earlier += reduction.of(3, r);
    s.is_first_largest = earlier == 0;
  }
  const RowGradient g = finish_row(rows, row, target, s, first == 0);
  if (rows.has_gradient)
    for_held([&](const auto& words, int column) {
      float v[kLane];
      unpack_words<T>(words, v);
#pragma unroll
      for (int k = 0; k < kLane; ++k) v[k] = gradient_at<T>(g, v[k]);
      if (static_cast<uint32_t>(target.column - column) < kLane) {
#pragma unroll
        for (int k = 0; k < kLane; ++k)
          if (column + k == target.column) v[k] -= g.at_target;
      }
      store<kLane>(logits + column, v);
    });
  if constexpr (kBlocks > 1)
    simt::cluster_sync();  // no block may leave while others read its memory
}

/// A largest logit and the sum of exponentials relative to it.
struct Running {
  float largest = -INFINITY, exponentials = 0;
};

/// What a block of threads finds in a row it reads once.
struct Scan {
  Softmax softmax;
  bool has_largest;  // this thread has read the largest logit, first at column `place`
  int32_t place;
};

template <typename T>
__device__ Scan scan_row(const Rows<T>& rows, const T* logits, RowReduction<1>& reduction) {
  constexpr int kLane = kLanes<T>;
  Running r;
  float sum = 0;
  // The first place of this thread's largest logit.
  int32_t place = rows.vocabulary;
  for (int32_t column = static_cast<int32_t>(threadIdx.x) * kLane; column < rows.vocabulary;
       column += kThreads * kLane) {
    float v[kLane];
    load<kLane>(logits + column, v);
    float largest = r.largest;
#pragma unroll
    for (int k = 0; k < kLane; ++k)
      if (column + k < rows.vocabulary) largest = fmaxf(largest, v[k]);
    if (largest > r.largest) {
      r.exponentials *= exponential<T>(r.largest, largest);
      r.largest = largest;
      place = rows.vocabulary;
    }
#pragma unroll
    for (int k = 0; k < kLane; ++k) {
      if (column + k >= rows.vocabulary) continue;
      r.exponentials += exponential<T>(v[k], r.largest);
      sum += v[k];
      if (v[k] == r.largest && column + k < place) place = column + k;
    }
  }
  Scan s{};
  s.softmax.largest = reduction.block_max(r.largest);
  s.has_largest = r.largest == s.softmax.largest;
  s.place = place;
  if (r.largest == -INFINITY && !std::isnan(r.exponentials))
    r.exponentials = 0;  // a thread without columns
  else
    r.exponentials *= exponential<T>(r.largest, s.softmax.largest);
  s.softmax.exponentials = reduction.block_sum(r.exponentials);
  if (rows.rule.off != 0) s.softmax.sum = reduction.block_sum(sum);
  return s;
}

/// The row's logits, read again, become their gradients.
template <typename T>
__device__ void write_gradient(const Rows<T>& rows, T* logits, const Target& target,
                               const RowGradient& g) {
  constexpr int kLane = kLanes<T>;
  for (int32_t column = static_cast<int32_t>(threadIdx.x) * kLane; column < rows.vocabulary;
       column += kThreads * kLane) {
    float v[kLane];
    load<kLane>(logits + column, v);
#pragma unroll
    for (int k = 0; k < kLane; ++k) {
      v[k] = gradient_at<T>(g, v[k]);
      if (column + k == target.column) v[k] -= g.at_target;
    }
    store<kLane>(logits + column, v);
  }
}

/// In the order of the blocks, so that every rank finds the same bits.
__device__ Softmax merged(const BlockStatistics* of_blocks, int64_t blocks, int32_t target) {
  Softmax s{-INFINITY, 0, 0, false};
  for (int64_t b = 0; b < blocks; ++b) s.largest = fmaxf(s.largest, of_blocks[b].largest);
  bool is_first = true;
  for (int64_t b = 0; b < blocks; ++b) {
    const BlockStatistics& block = of_blocks[b];
    s.exponentials += block.exponentials * expf(block.largest - s.largest);
    s.sum += block.sum;
    if (is_first && block.largest == s.largest) {
      s.is_first_largest = block.column == static_cast<float>(target);
      is_first = false;
    }
  }
  return s;
}

/// Any vocabulary: a block reads the row twice, or, if its statistics are known, once.
template <typename T>
__global__ void __launch_bounds__(kThreads) long_rows(const __grid_constant__ Rows<T> rows) {
  RowReduction<1> reduction;
  const int64_t row = blockIdx.x;
  const bool is_first = threadIdx.x == 0;
  T* logits = rows.logits + row * rows.stride;
  const Target target = read_target(rows, row, is_first);
  if (is_idle(rows, target)) {
    write_idle(rows, row, threadIdx.x, kThreads);
    return;
  }
  Softmax s;
  if (rows.statistics != nullptr) {
    __syncthreads();  // the target's logit was read by all before it becomes a gradient
    s = merged(rows.statistics + row * rows.blocks, rows.blocks, rows.targets[row]);
  } else {
    const Scan scan = scan_row(rows, logits, reduction);
    const float earlier = scan.has_largest && scan.place < target.column ? 1 : 0;
    s = scan.softmax;
    s.is_first_largest = target.logit == s.largest && reduction.block_sum(earlier) == 0;
  }
  const RowGradient g = finish_row(rows, row, target, s, is_first);
  if (rows.has_gradient) write_gradient(rows, logits, target, g);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    summarize_kernel(const __grid_constant__ Rows<T> rows, BlockStatistics* statistics) {
  RowReduction<1> reduction;
  const int64_t row = blockIdx.x;
  const T* logits = rows.logits + row * rows.stride;
  // Faults are for the second phase to raise: weights are not known here.
  const int32_t column = rows.targets[row] - rows.first_column;
  const bool is_here = rows.targets[row] >= rows.first_column && column < rows.vocabulary;
  const Scan s = scan_row(rows, logits, reduction);
  // As floats columns keep all their digits, up to kMostColumns.
  const float before = s.has_largest ? static_cast<float>(rows.vocabulary - s.place) : -INFINITY;
  const auto from_end = static_cast<int32_t>(reduction.block_max(before));
  if (threadIdx.x > 0) return;
  statistics[row] = {s.softmax.largest, s.softmax.exponentials, s.softmax.sum,
                     is_here ? simt::to_float(logits[column]) : 0.0f,
                     static_cast<float>(rows.first_column + rows.vocabulary - from_end)};
}

/// A cluster of blocks a row.
template <typename T>
simt::Launch row_launch(const Rows<T>& rows, int64_t tokens, Stream stream, unsigned cluster = 1) {
  QT_ASSERT(tokens < int64_t{1} << 27);  // blocks of a grid, eight a row
  // A short row takes no more warps than it has units for.
  const int64_t units = (rows.vocabulary + kLanes<T> - 1) / kLanes<T>;
  return {.grid = static_cast<unsigned>(tokens) * cluster,
          .block = static_cast<unsigned>(std::clamp<int64_t>((units + 31) / 32 * 32, 32, kThreads)),
          .shared = 256,
          .stream = stream,
          .cluster = cluster};
}

}  // namespace

template <typename T>
void process_rows(const Rows<T>& rows, int64_t tokens, Stream stream) {
  if (tokens == 0) return;
  // 32 registers a thread hold the row; with the rest of the kernel two blocks fit.
  constexpr int kMost = 8;
  const int64_t units = (rows.vocabulary + kLanes<T> - 1) / kLanes<T>;
  const auto run = [&](auto kernel, unsigned cluster) {
    simt::launch(kernel, row_launch(rows, tokens, stream, cluster), rows);
  };
  if (rows.statistics != nullptr)
    run(long_rows<T>, 1);
  else if (units <= kThreads)
    run(held_rows<T, 1, 1>, 1);
  else if (units <= kThreads * kMost / 2)
    run(held_rows<T, kMost / 2, 1>, 1);
  else if (units <= kThreads * kMost)
    run(held_rows<T, kMost, 1>, 1);
  else if (simt::device().sm != 90 || units > kThreads * kMost * 8)
    run(long_rows<T>, 1);
  else if (units <= kThreads * kMost * 2)
    run(held_rows<T, kMost, 2>, 2);
  else if (units <= kThreads * kMost * 4)
    run(held_rows<T, kMost, 4>, 4);
  else
    run(held_rows<T, kMost, 8>, 8);
}

template <typename T>
void summarize_rows(const Rows<T>& rows, int64_t tokens, BlockStatistics* statistics,
                    Stream stream) {
  constexpr int32_t kMostColumns = 1 << 24;  // that a float counts
  QT_ASSERT(rows.all_columns <= kMostColumns);
  if (tokens > 0)
    simt::launch(summarize_kernel<T>, row_launch(rows, tokens, stream), rows, statistics);
}

template void process_rows(const Rows<float>&, int64_t, Stream);
template void process_rows(const Rows<bf16>&, int64_t, Stream);
template void summarize_rows(const Rows<float>&, int64_t, BlockStatistics*, Stream);
template void summarize_rows(const Rows<bf16>&, int64_t, BlockStatistics*, Stream);

}  // namespace quintet::QT_GPU::cross_entropy
