#pragma once
// Scores in registers, shared by the mma.sync and the wgmma kernels: a warp's accumulator of 16
// rows and 8 n columns is n fragments; fragment j of a thread holds
//   s[4j], s[4j+1]    row r,     columns 8j + 2c, 8j + 2c + 1       r = lane / 4, c = lane % 4
//   s[4j+2], s[4j+3]  row r + 8, the same columns
// Accumulators begin as bias / scale, or it is added to them, so that scores are scale * s; exp2 takes
// s * (scale * log2(e)).

#include <cmath>

#include "kernels/attention/gpu/device_problem.cuh"

namespace quintet::QT_GPU::attention {

/// A head's bias by relative position in shared memory, for tiles of `rows` x `columns`: entry e
/// has relative position e - origin(); two copies, the second one entry ahead, so that a pair of
/// neighbours is one aligned load wherever it begins, and 16 banks apart.
struct BiasDiagonals {
  int reach, rows, columns;
  simt::Shared<float2> pairs;

  __host__ __device__ static int floats(int reach, int rows, int columns) {
    return 2 * reach + 2 * (rows + columns);
  }
  /// Floats from one copy to the other.
  __host__ __device__ static int stride(int reach, int rows, int columns) {
    return (floats(reach, rows, columns) + 15) / 32 * 32 + 16;
  }
  __host__ __device__ static size_t bytes(int reach, int rows, int columns) {
    return sizeof(float) * 2 * static_cast<size_t>(stride(reach, rows, columns));
  }
  __device__ BiasDiagonals(int its_reach, int its_rows, int its_columns, size_t byte_offset)
      : reach(its_reach),
        rows(its_rows),
        columns(its_columns),
        pairs(simt::shared<float2>(byte_offset, stride(its_reach, its_rows, its_columns))) {}
  __device__ int origin() const { return reach + rows + columns; }

  /// Fills both copies with all of the block's threads, or with `threads` of them, this one being
  /// `thread`; `sign` -1: relative positions are those of the rows' tokens to the columns' (query -
  /// key), not (key - query). No barrier.
  __device__ void load(const Problem& p, int head, int sign, size_t byte_offset) const {
    load(p, head, sign, byte_offset, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
  }
  __device__ void load(const Problem& p, int head, int sign, size_t byte_offset, int thread,
                       int threads) const {
    const int n = floats(reach, rows, columns), second = stride(reach, rows, columns);
    auto x = simt::shared<float>(byte_offset, 2 * second);
    for (int e = thread; e < n; e += threads) {
      const float value = p.bias(head, clamp_relative(sign * (e - origin()), reach));
      x[e] = value;
      if (e > 0) x[second + e - 1] = value;
      if (e == n - 1) x[second + e] = value;
    }
  }
  /// Entry of row 0 and column 0 of a tile whose first elements are `relative` apart. Beyond the
  /// reach all tiles are alike, and share entries.
  __device__ int entry(int relative) const {
    const int low = -(reach + columns), high = reach + rows;
    return origin() + (relative < low ? low : relative > high ? high : relative);
  }
  /// s = bias. `e`: entry of row r and column 2c of the thread's first fragment. What row r + 8
  /// needs at a fragment is what row r had at the one before.
  template <int kFragments>
  __device__ void fill(float (&s)[4 * kFragments], int e) const {
    const int at = (e >> 1) + (e & 1) * (stride(reach, rows, columns) / 2);
    float2 before = pairs[at - 4];
#pragma unroll
    for (int j = 0; j < kFragments; ++j) {
      const float2 here = pairs[at + 4 * j];
      s[4 * j] = here.x;
      s[4 * j + 1] = here.y;
      s[4 * j + 2] = before.x;
      s[4 * j + 3] = before.y;
      before = here;
    }
  }
  /// What fill() loads, for add_bias(): `bias` is of kFragments + 1 pairs.
  template <int kPairs>
  __device__ void read(float2 (&bias)[kPairs], int e) const {
    const int at = (e >> 1) + (e & 1) * (stride(reach, rows, columns) / 2);
#pragma unroll
    for (int j = 0; j < kPairs; ++j) bias[j] = pairs[at + 4 * (j - 1)];
  }
};

/// s += bias, as BiasDiagonals::read() has it.
template <int kFragments>
__device__ void add_bias(const float2 (&bias)[kFragments + 1], float (&s)[4 * kFragments]) {
#pragma unroll
  for (int j = 0; j < kFragments; ++j) {
    s[4 * j] += bias[j + 1].x;
    s[4 * j + 1] += bias[j + 1].y;
    s[4 * j + 2] += bias[j].x;
    s[4 * j + 3] += bias[j].y;
  }
}

inline constexpr float kMinusInfinity = -INFINITY;
inline constexpr float kLog2E = 1.44269504088896340736F, kLn2 = 0.69314718055994530942F;

/// A thread's part of a mask: element i of fragment j has bit 2 j + i % 2 of word i / 2. Scores
/// whose bit in `in` is not set become -infinity; those whose bit in `none` is, of queries without
/// an allowed key, 0.
struct MaskBits {
  uint32_t in[2], none[2];
};

template <int kFragments>
__device__ void apply_mask(const MaskBits& mask, float (&s)[4 * kFragments]) {
  static_assert(kFragments <= 16);
#pragma unroll
  for (int j = 0; j < kFragments; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t bit = 1U << (2 * j + i % 2);
      const float score = (mask.none[i / 2] & bit) != 0 ? 0.0F : s[4 * j + i];
      s[4 * j + i] = (mask.in[i / 2] & bit) != 0 ? score : kMinusInfinity;
    }
}

/// Bits of a thread's columns, in the order of apply_mask(), before column `end` (counted from its
/// first).
__device__ inline uint32_t columns_before(int end) {
  const int bits = 2 * (end >> 3) + min(end & 7, 2);
  return end <= 0 ? 0U : bits >= 32 ? ~0U : (1U << bits) - 1U;
}

/// The mask of scores of queries (rows) and keys (columns): `key` is that of column 2c of the first
/// fragment, rows are queries `query` and query + 8.
template <int kFragments>
__device__ MaskBits mask_of(const Problem& p, int b, int query, int key) {
  MaskBits mask;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const RowKeys row = row_keys(p, b, query + 8 * half);
    uint32_t in = columns_before(row.end - key) & ~columns_before(row.begin - key);
    if (row.holes) {
#pragma unroll 1
      for (int n = 0; n < 2 * kFragments; ++n)
        if ((in & (1U << n)) != 0 && !allowed(p, b, query + 8 * half, key + n / 2 * 8 + n % 2))
          in &= ~(1U << n);
    }
    mask.in[half] = in;
    mask.none[half] = row.none ? ~0U : 0U;
  }
  return mask;
}

/// The running softmax of a thread's two rows. Weights are exp2(scale * s - shift), where shift is a scaled
/// score that none of the row so far exceeds by more than kSlack: sums are rescaled only when one
/// does. Weights are at most 2^kSlack, as precise as those below 1 in bfloat16 and in float32.
struct RunningSoftmax {
  static constexpr float kNone = -3e38F;  // without a score; -infinity less it is no NaN
  static constexpr float kSlack = 8;
  float shift[2] = {kNone, kNone};
  float total[2] = {0, 0};  // of this thread's columns

  /// s = scale * s - shift, scale > 0. Whether a row of the warp has a new shift; `exponent` is the old one
  /// less the new, and rescale() is due before add().
  template <int kFragments>
  __device__ bool advance(float (&s)[4 * kFragments], float scale, float (&exponent)[2]) {
    float here[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      here[half] = fmaxf(s[2 * half], s[2 * half + 1]);
#pragma unroll
      for (int j = 1; j < kFragments; ++j)
        here[half] = fmaxf(here[half], fmaxf(s[4 * j + 2 * half], s[4 * j + 2 * half + 1]));
    }
    bool grows = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      here[half] = fmaxf(here[half], __shfl_xor_sync(0xffffffffU, here[half], 1));
      here[half] = fmaxf(here[half], __shfl_xor_sync(0xffffffffU, here[half], 2));
      const bool mine = fmaf(here[half], scale, -shift[half]) > kSlack;
      const float next = mine ? here[half] * scale : shift[half];
      exponent[half] = shift[half] - next;
      shift[half] = next;
      grows = grows || mine;
#pragma unroll
      for (int j = 0; j < kFragments; ++j)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i)
          s[4 * j + i] = fmaf(s[4 * j + i], scale, -next);
    }
    return __any_sync(0xffffffffU, grows ? 1 : 0) != 0;
  }
  /// s = exp2(s) in row `half`.
  template <int kFragments>
  __device__ static void weigh(int half, float (&s)[4 * kFragments]) {
#pragma unroll
    for (int j = 0; j < kFragments; ++j)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) s[4 * j + i] = simt::exp2_approx(s[4 * j + i]);
  }
  /// Adds the weights of row `half` to its total.
  template <int kFragments>
  __device__ void add(int half, const float (&weights)[4 * kFragments]) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kFragments; ++j) {
      sum += weights[4 * j + 2 * half];
      sum += weights[4 * j + 2 * half + 1];
    }
    total[half] += sum;
  }
  /// Brings totals over earlier columns to the new shift; `factors`: what sums over them are to be multiplied with.
  __device__ void rescale_totals(const float (&exponent)[2], float (&factors)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factors[half] = simt::exp2_approx(exponent[half]);
      total[half] *= factors[half];
    }
  }
  /// Sums in the order of fragments, times the factors of their rows.
  template <int kCount>
  __device__ static void rescale(const float (&factors)[2], float (&sums)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] *= factors[i / 2 % 2];
  }
  /// Sums `total` over the four threads of a row.
  __device__ void finish() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      total[half] += __shfl_xor_sync(0xffffffffU, total[half], 1);
      total[half] += __shfl_xor_sync(0xffffffffU, total[half], 2);
    }
  }
  /// log(sum of exp(scores)) of row `half`.
  __device__ float log_sum(int half) const {
    return ((half == 0 ? shift[0] : shift[1]) + log2f(half == 0 ? total[0] : total[1])) * kLn2;
  }
  /// What the sums of row `half` become weights' averages with; NaN stays NaN.
  __device__ float share(int half) const { return total[half] == 0 ? 0.0F : 1.0F / total[half]; }
};

/// Two neighbouring fragments as the A operand of a product of 16 columns.
template <int kCount>
__device__ void to_operand(const float (&s)[kCount], int k, uint32_t (&a)[4]) {
  a[0] = simt::pack_bf16(s[8 * k], s[8 * k + 1]);
  a[1] = simt::pack_bf16(s[8 * k + 2], s[8 * k + 3]);
  a[2] = simt::pack_bf16(s[8 * k + 4], s[8 * k + 5]);
  a[3] = simt::pack_bf16(s[8 * k + 6], s[8 * k + 7]);
}

/// Scores of a tile become weights exp2(scale * s - lse), transposed: rows are keys, columns
/// queries, whose lse lie in shared memory, pairs of neighbours together. c = lane % 4.
template <int kFragments>
__device__ void weights_transposed(float (&s)[4 * kFragments], float scale,
                                   simt::Shared<float2> lse, int c) {
#pragma unroll
  for (int j = 0; j < kFragments; ++j) {
    const float2 shift = lse[4 * j + c];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      s[4 * j + i] = simt::exp2_approx(fmaf(s[4 * j + i], scale, i % 2 == 0 ? -shift.x : -shift.y));
  }
}

/// Gradients of weights become gradients of scores: dp = p * (keep_scale * dp - delta), delta as lse
/// above. weights(j, half): of fragment j the two weights of row `half`.
template <int kFragments, typename Weights>
__device__ void differentiate_transposed(const Weights& weights, float (&dp)[4 * kFragments],
                                         simt::Shared<float2> delta, float keep_scale, int c) {
#pragma unroll
  for (int j = 0; j < kFragments; ++j) {
    const float2 less = delta[4 * j + c];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 p = weights(j, half);
      float* two = &dp[4 * j + 2 * half];
      two[0] = p.x * fmaf(keep_scale, two[0], -less.x);
      two[1] = p.y * fmaf(keep_scale, two[1], -less.y);
    }
  }
}

/// mask_of() for the transpose: rows are keys `row` and row + 8 of the block of 128 from `key0`
/// on, columns the queries from `query0` on. A lane looks up every 32nd query for its warp.
template <int kFragments>
__device__ MaskBits mask_transposed(const Problem& p, int b, int query0, int key0, int row,
                                    int lane) {
  constexpr int kBlock = 128;
  constexpr uint32_t kNone = 1U << 16, kHoles = 1U << 17;
  const int c = lane % 4;
  uint32_t packed[kFragments / 4];  // begin and end relative to key0
#pragma unroll
  for (int i = 0; i < kFragments / 4; ++i) {
    const RowKeys keys = row_keys(p, b, query0 + 32 * i + lane);
    const int begin = min(max(keys.begin - key0, 0), kBlock);
    const int end = min(max(keys.end - key0, 0), kBlock);
    packed[i] = static_cast<uint32_t>(begin | end << 8) | (keys.none ? kNone : 0U) |
                (keys.holes ? kHoles : 0U);
  }
  MaskBits mask{};
  uint32_t holes = 0;
#pragma unroll
  for (int n = 0; n < 2 * kFragments; ++n) {
    const int column = n / 2 * 8 + 2 * c + n % 2;
    const uint32_t keys = __shfl_sync(0xffffffffU, packed[n / 8], column % 32);
    const uint32_t begin = keys & 255U, count = (keys >> 8 & 255U) - begin, bit = 1U << n;
    if (static_cast<uint32_t>(row) - begin < count) mask.in[0] |= bit;
    if (static_cast<uint32_t>(row) + 8U - begin < count) mask.in[1] |= bit;
    if ((keys & kNone) != 0) mask.none[0] |= bit;
    holes |= keys & kHoles;
  }
  mask.none[1] = mask.none[0];
  if (holes == 0) return mask;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = key0 + row + 8 * half;
    uint32_t in = mask.in[half] & ~mask.none[0];
#pragma unroll 1
    for (int n = 0; n < 2 * kFragments; ++n)
      if ((in & (1U << n)) != 0 && !allowed(p, b, query0 + n / 2 * 8 + 2 * c + n % 2, key))
        in &= ~(1U << n);
    mask.in[half] = in | (mask.in[half] & mask.none[0]);
  }
  return mask;
}

}  // namespace quintet::QT_GPU::attention
