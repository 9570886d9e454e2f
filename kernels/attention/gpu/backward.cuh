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

struct GradientOperands {
  const bf16 *q, *k, *v, *dout;
  const uint8_t* keep;  // null: no dropout
  const float *lse, *delta;
  int64_t statistics_stride;  // padded queries
};

inline GradientOperands gradient_operands(const Prepared& p, const Statistics& s,
                                          const bf16* dout) {
  return {static_cast<const bf16*>(p.q),
          static_cast<const bf16*>(p.k),
          static_cast<const bf16*>(p.v),
          dout,
          p.keep,
          s.lse,
          s.delta,
          padded_queries(p.problem.queries)};
}

struct GradientResults {
  bf16 *dq, *dk, *dv;
  float4* dq_sums;         // [b, h, part, query tile, ...]: the kernel's own order
  float* dbias_diagonals;  // [b, h, part, 2 reach + 1]; null: not asked for
};

/// Blocks of keys of a part: [begin, end).
struct Part {
  int begin, end;
};
__device__ inline Part part_of(int key_blocks, int parts, int part) {
  return {static_cast<int>(static_cast<int64_t>(key_blocks) * part / parts),
          static_cast<int>(static_cast<int64_t>(key_blocks) * (part + 1) / parts)};
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
  /// Adds a tile of kKeys rows and kQueries columns, in boxes of 64 columns as above, with tensor
  /// cores: `half` 0 and 1, a warp each, take the diagonals left and right of the first one.
  /// `zeros`: 16 bytes of them in shared memory.
  template <int kKeys, int kQueries>
  __device__ void add_by_products(int relative, int half, simt::Shared<bf16> tile,
                                  simt::Shared<bf16> zeros) const {
    const int first = head_diagonals.entry(relative), lane = static_cast<int>(threadIdx.x) % 32;
    if (relative - (kKeys - 1) >= head_diagonals.reach ||
        relative + kQueries - 1 <= -head_diagonals.reach) {
      const auto words = simt::shared_cast<uint32_t>(tile);
      low[first + (half == 0 ? -32 : 0) + lane] +=
          sum_of<kKeys * kQueries / 64>(32 * half + lane, 64, words);
      return;
    }
    // Blocks of 8 x 8: diagonal d = 8 r + s of blocks r = column block - row block, s = column -
    // row within the block. Row i of A is block r = 16 half - 16 + i of row block a, a pair of its
    // rows end to end; B selects s: columns of its first tile are s = -8, ..., -1, of its second 0,
    // ..., 7.
    float sums[2][4] = {};
    const int r = 16 * half - 16 + lane % 16, odd = lane / 16;
    const int n = lane / 4, k = 2 * (lane % 4);
#pragma unroll 1
    for (int pair = 0; pair < 4; ++pair) {
      uint32_t select[2][2];
#pragma unroll
      for (int t = 0; t < 2; ++t)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          constexpr uint32_t kOne = 0x3f80;
          const int one = n - 8 + 8 * t + 2 * pair + i - k;  // where s is that of column n
          select[t][i] = one == 0 ? kOne : one == 1 ? kOne << 16 : 0U;
        }
      const int row = 2 * pair + odd;
#pragma unroll 4
      for (int a = 0; a < kKeys / 8; ++a) {
        const int block = r + a;
        const bool is_in = block >= 0 && block < kQueries / 8;
        const int at = block / 8 * kKeys * 64 + (8 * a + row) * 64 + ((block ^ row) & 7) * 8;
        uint32_t operand[4];
        simt::ldmatrix_x4(operand, is_in ? &tile[at] : &zeros[0]);
        simt::mma_m16n8k16(sums[0], operand, select[0], sums[0], bf16{});
        simt::mma_m16n8k16(sums[1], operand, select[1], sums[1], bf16{});
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int diagonal = 8 * (16 * half - 16 + n + i / 2 * 8) + k + i % 2;
      if (diagonal - 8 >= -(kKeys - 1) && diagonal - 8 < kQueries)
        high[first + diagonal - 8] += sums[0][i];
      if (diagonal >= -(kKeys - 1) && diagonal < kQueries) low[first + diagonal] += sums[1][i];
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

}  // namespace quintet::QT_GPU::attention
