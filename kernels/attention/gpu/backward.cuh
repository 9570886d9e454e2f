#pragma once
// What the tensor-core gradient kernels share: who computes what, and the gradient of the
// bias diagonals.
//
// A block owns the keys of one part of a head of a sequence and takes its queries a tile at a time,
// for one block of keys after the other. The sums of dq stay in global memory, in the order of the
// accumulators, between two blocks of keys: only the thread that wrote a sum reads it, so results
// do not depend on timing. With one part the last block of keys turns sums into dq; with several a
// kernel adds the parts, in order.

#include "kernels/attention/gpu/fragment.cuh"
#include "kernels/attention/gpu/tensor_core.cuh"

namespace quintet::QT_GPU::attention {

struct GradientResults {
  bf16 *dq, *dk, *dv;
  float4* dq_sums;         // [row, query tile, ...]: the kernel's own rows and order
  float* dbias_diagonals;  // [b, h, part, 2 reach + 1]; null: not asked for
};

/// Blocks of keys of a part: [begin, end). There are at most 16 parts (best_parts) and 2^24 blocks.
struct Part {
  int begin, end;
};
__device__ inline Part part_of(int key_blocks, int parts, int part) {
  return {key_blocks * part / parts, key_blocks * (part + 1) / parts};
}

/// Blocks of keys, `key_block` keys each, of a part that a tile of queries has to do with.
__device__ inline Part visits(const TileKeys& keys, int key_block, const Part& part) {
  return {max(part.begin, keys.begin / key_block),
          min(part.end, (keys.end + key_block - 1) / key_block)};
}

/// The number of parts that leaves the fewest blocks of keys to the busiest multiprocessor.
inline int best_parts(int64_t items, int64_t key_blocks, int64_t multiprocessors) {
  int best = 1;
  int64_t fewest = INT64_MAX;
  for (int parts = 1; parts <= key_blocks && parts <= 16; ++parts) {
    const int64_t waves = (items * parts + multiprocessors - 1) / multiprocessors;
    const int64_t blocks = waves * ((key_blocks + parts - 1) / parts);
    if (blocks * 20 >= fewest * 19) continue;  // more parts cost memory and a kernel
    fewest = blocks;
    best = parts;
  }
  return best;
}

/// Sums of gradients of scores along diagonals, in shared memory: two rows of entries as BiasDiagonals
/// numbers them (relative positions query - key), the second one for the upper half of each pair.
class DiagonalsGradient {
 public:
  BiasDiagonals head_diagonals;
  simt::Shared<float> low, high;

  __host__ __device__ static size_t bytes(int reach, int rows, int columns) {
    return BiasDiagonals::bytes(reach, rows, columns);
  }
  __device__ DiagonalsGradient(const BiasDiagonals& its, size_t byte_offset)
      : head_diagonals(its),
        low(simt::shared<float>(byte_offset, count())),
        high(simt::shared<float>(byte_offset + sizeof(float) * count(), count())) {}
  __device__ int count() const {
    return BiasDiagonals::floats(head_diagonals.reach, head_diagonals.rows, head_diagonals.columns);
  }

  /// All threads of the block; no barrier.
  __device__ void clear() const {
    for (int e = static_cast<int>(threadIdx.x); e < count(); e += static_cast<int>(blockDim.x)) {
      low[e] = 0;
      high[e] = 0;
    }
  }
  /// Adds a tile of kKeys rows and 64 columns of bfloat16, in words of two columns: rows of 128
  /// bytes, whose 16-byte pieces are permuted as in the 128-byte swizzle. `relative`: position of
  /// column 0 minus that of row 0. Called by threads 0 to `threads` - 1.
  template <int kKeys>
  __device__ void add(int relative, int thread, int threads, simt::Shared<uint32_t> tile) const {
    const int first = head_diagonals.entry(relative);
    if (relative - (kKeys - 1) >= head_diagonals.reach || relative + 63 <= -head_diagonals.reach) {
      // All of one bucket: any entries of that side will do, at most 256 of them.
      (thread < 128 ? low : high)[first - (kKeys - 1) + thread % 128] +=
          sum_of<kKeys>(thread, threads, tile);
      return;
    }
    // A pair of diagonals: words whose first column minus row is constant.
    for (int d = thread; d < kKeys + 62; d += threads) {
      const int diagonal = d - (kKeys - 1);
      const float2 sum = walk<kKeys>(diagonal, tile);
      low[first + diagonal] += sum.x;
      high[first + diagonal + 1] += sum.y;
    }
  }
  /// Writes the gradient of the head's diagonals [2 reach + 1], by key - query. After a barrier.
  __device__ void store(float* to) const {
    const int length = 2 * head_diagonals.reach + 1;
    for (int i = static_cast<int>(threadIdx.x); i < length; i += static_cast<int>(blockDim.x)) {
      const int e = head_diagonals.origin() + head_diagonals.reach - i;  // query - key = reach - i
      int begin = e, end = e + 1;
      if (i == 0) end = count();
      if (i == length - 1) begin = 0;
      float sum = 0;
      for (int n = begin; n < end; ++n) sum += low[n] + high[n];
      to[i] = sum;
    }
  }

 private:
  template <int kRows>
  __device__ static float sum_of(int thread, int threads, simt::Shared<uint32_t> tile) {
    const auto pieces = simt::shared_cast<uint4>(tile);
    float sum = 0;
#pragma unroll 2
    for (int i = thread; i < kRows * 8; i += threads) {
      const uint4 x = pieces[i];
      const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float2 pair = simt::unpack<bf16>(words[n]);
        sum += pair.x + pair.y;
      }
    }
    return sum;
  }
  // Word m of a row r is word (m / 4 ^ r % 8) * 4 + m % 4 of it. Four steps on, r is 8 more, m 4:
  // the piece is the next one and all else is as before.
  template <int kKeys>
  __device__ static float2 walk(int diagonal, simt::Shared<uint32_t> tile) {
    const int row = diagonal < 0 ? -diagonal : diagonal & 1, m = (diagonal + row) / 2;
    const int steps = min((kKeys - row + 1) / 2, 32 - m);
    float2 sum = make_float2(0, 0);
    static_assert((kKeys & (kKeys - 1)) == 0);
#pragma unroll 2
    for (int n = 0; n < steps; n += 4) {
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // no branches: loads that follow each other
        const int piece = (((m + i) / 4 + n / 4) ^ (row + 2 * i)) & 7;
        const int at = ((row + 2 * (n + i)) & (kKeys - 1)) * 32 + piece * 4 + (m + i) % 4;
        words[i] = tile[at];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = simt::unpack<bf16>(n + i < steps ? words[i] : 0U);
        sum.x += pair.x;
        sum.y += pair.y;
      }
    }
    return sum;
  }
};

/// Sums along diagonals of a warp's fragments, of 16 rows: returns d, and in sums[u] the sum of the
/// elements with column - row = d + 32 u. Row r + 8 of a fragment lies on the diagonals of row r of the
/// one before; what is left is, for each of 8 r + 2 c + i, summed over the lanes by halves.
template <int kFragments>
__device__ int sum_along_diagonals(const float (&s)[4 * kFragments], int lane,
                                   float (&sums)[(kFragments + 5) / 4]) {
  constexpr int kCount = kFragments + 2, kHalf = (kCount + 1) / 2, kQuarter = (kHalf + 1) / 2;
  static_assert(kQuarter == (kFragments + 5) / 4);
  const int r = lane / 4, c = lane % 4;
  // Diagonal 8 (n - 2) + w of this lane's element i: w = (2 c + i - r) mod 8, the same for eight of
  // all lanes' elements.
  const auto folded = [&](int m, int i) {
    float x = 0;
    if (m >= 1 && m <= kFragments) x = s[4 * (m - 1) + i];
    if (m >= 0 && m < kFragments) x += s[4 * m + 2 + i];
    return x;
  };
  float whole[2 * kHalf] = {}, half[2 * kQuarter] = {};
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    const float even = 2 * c < r ? folded(n, 0) : folded(n - 1, 0);
    const float odd = 2 * c + 1 < r ? folded(n, 1) : folded(n - 1, 1);
    whole[n] = even + __shfl_sync(0xffffffffU, odd, (lane + 4) & 31);  // of row r + 1, or 0 after 7
  }
  // Four lanes have sums of the same diagonals: (r, c), (r + 2, c + 1), ...
#pragma unroll
  for (int n = 0; n < kHalf; ++n) {
    const float mine = c < 2 ? whole[2 * n] : whole[2 * n + 1];
    const float others = c < 2 ? whole[2 * n + 1] : whole[2 * n];
    half[n] = mine + __shfl_xor_sync(0xffffffffU, others, 18);
  }
  const int neighbour = (c % 2 == 0 ? lane + 9 : lane - 9) & 31;
#pragma unroll
  for (int n = 0; n < kQuarter; ++n) {
    const float mine = c % 2 == 0 ? half[2 * n] : half[2 * n + 1];
    const float others = c % 2 == 0 ? half[2 * n + 1] : half[2 * n];
    sums[n] = mine + __shfl_sync(0xffffffffU, others, neighbour);
  }
  return 8 * (2 * (c % 2) + c / 2 - 2) + ((2 * c - r) & 7);
}

/// The same sums taken where gradients of scores are, in registers: of each warp a strip of entries of its
/// own, diagonals (query - key) beyond the reach on either side a sum for each lane. Shared memory; no
/// two lanes share an entry within a tile, and between two tiles the threads have met.
class DiagonalStrips {
 public:
  __host__ __device__ static int floats(int reach) { return 2 * reach + 1 + 64; }
  __host__ __device__ static size_t bytes(int reach, int warps) {
    return sizeof(float) * static_cast<size_t>(floats(reach) * warps);
  }
  __device__ DiagonalStrips(int its_reach, int its_warps, size_t byte_offset)
      : reach(its_reach),
        warps(its_warps),
        all(simt::shared<float>(byte_offset, floats(its_reach) * its_warps)) {}

  /// All threads of the block; no barrier.
  __device__ void clear() const {
    for (int e = static_cast<int>(threadIdx.x); e < floats(reach) * warps;
         e += static_cast<int>(blockDim.x))
      all[e] = 0;
  }
  /// Adds a warp's fragments, rows are keys, columns queries. `relative`: position of column 0
  /// minus that of the warp's row 0.
  template <int kFragments>
  __device__ void add(int relative, int warp, int lane, const float (&s)[4 * kFragments]) const {
    const auto strip = all + warp * floats(reach);
    if (relative - 15 >= reach || relative + 8 * kFragments - 1 <= -reach) {
      float sum[4] = {s[0], s[1], s[2], s[3]};
#pragma unroll
      for (int j = 1; j < kFragments; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i] += s[4 * j + i];
      strip[at(relative, lane)] += (sum[0] + sum[1]) + (sum[2] + sum[3]);
      return;
    }
    float sums[(kFragments + 5) / 4];
    const int first = relative + sum_along_diagonals<kFragments>(s, lane, sums);
#pragma unroll
    for (int u = 0; u < (kFragments + 5) / 4; ++u) strip[at(first + 32 * u, lane)] += sums[u];
  }
  /// The sums beyond the reach become those of the last entries. After the warp's last tile.
  __device__ void finish(int warp, int lane) const {
    const auto strip = all + warp * floats(reach);
    float low = strip[lane], high = strip[33 + 2 * reach + lane];
    strip[lane] = strip[33 + 2 * reach + lane] = 0;
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
      low += __shfl_xor_sync(0xffffffffU, low, mask);
      high += __shfl_xor_sync(0xffffffffU, high, mask);
    }
    if (lane != 0) return;
    strip[32] = low;
    strip[32 + 2 * reach] = reach == 0 ? low + high : high;
  }
  /// Writes the gradient of the head's diagonals [2 reach + 1], by key - query, and clears the strips, by
  /// threads 0 to `threads` - 1. Between barriers.
  __device__ void store(float* to, int thread, int threads) const {
    const int length = 2 * reach + 1;
    for (int i = thread; i < length; i += threads) {
      float sum = 0;
      for (int warp = 0; warp < warps; ++warp) {
        float& entry = all[warp * floats(reach) + 32 + length - 1 - i];
        sum += entry;
        entry = 0;
      }
      to[i] = sum;
    }
  }

 private:
  __device__ int at(int diagonal, int lane) const {
    return diagonal <= -reach  ? lane
           : diagonal >= reach ? 33 + 2 * reach + lane
                               : 32 + reach + diagonal;
  }
  int reach, warps;
  simt::Shared<float> all;
};

}  // namespace quintet::QT_GPU::attention
