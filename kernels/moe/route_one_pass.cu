// Routing in one launch, where each token chooses and tokens of a group are placed as they come.
// The blocks, all resident together, take tiles of consecutive tokens of a group. A position is the
// number of choices of the expert that come before: first choices of the whole group before second
// ones, then tiles in order, then tokens of the tile. The grid waits three times:
//
//   weigh, rank   tiles: softmax, choices, their ranks and how many each expert has in the tile
//   scan          experts: prefix sums over the tiles of each group, and over groups
//   assign_slots   tiles: positions, packed rows
//   write_totals  one block adds up what tiles and experts have in common
//
// Logits are read once and probabilities never written. Tiles depend on shapes alone, so the same
// bits on every device. Batch priority and experts that choose need a sort: route.cu.

#include <algorithm>

#include "kernels/moe/route.cuh"
#include "kernels/moe/softmax.cuh"
#include "kernels/simt/cluster.cuh"
#include "kernels/simt/host/scratch.h"
#include "kernels/simt/resident.cuh"
#include "kernels/vectors/operands_gpu.h"

namespace quintet::QT_GPU::moe {
namespace {

using cpu::Routing;

constexpr int kWarps = kBlockThreads / 32;
constexpr int64_t kTiles = 1024;  // about: more than large GPUs hold blocks, few enough to scan
constexpr int64_t kLargestTile = 1 << 15;  // whose ranks fit 16 bits
constexpr uint16_t kNotPacked = 0xffff;

/// Choices of an expert: all, and those that get a packed row.
template <typename T>
struct Count {
  T placed, packed;
};
using Rank = Count<uint16_t>;   // those before a choice in its tile; packed: kNotPacked for padding
using Before = Count<int32_t>;  // of a tile, later of the tiles before it

struct Tile {
  int group, number, count;  // number: in the group
  int64_t first;             // token of all
};
struct Plan {
  Routing r;
  int tile_size, group_tiles, tiles;

  __device__ Tile tile(int i) const {
    const int group = i / group_tiles, number = i % group_tiles, begin = number * tile_size;
    return {group, number, min(tile_size, static_cast<int>(r.group_size) - begin),
            group * r.group_size + begin};
  }
  /// An expert's tokens of a group.
  __device__ int64_t segment(int expert, int group) const {
    return expert * r.local_groups() + group;
  }
};
struct Work {
  int32_t* experts;      // [tokens, choices]; -1: none
  float* gates;          // [tokens, choices]
  Rank* ranks;           // [tokens, choices]
  Before* before;        // [segments, choices, group tiles]
  float* probabilities;  // [segments, group tiles]: sums
  int32_t* rows;         // [segments]: packed rows of the expert for the groups before
  int32_t* packed;       // [experts]: packed rows
  int32_t* load;         // [experts]: choices served
  float* balance;        // [experts]: how often chosen times the sum of probabilities, over groups
  Tally* tallies;        // [tiles]
};

/// Sum over the lanes before this one.
QT_DEVICE int sum_before(int v) {
  int sum = v;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(kWholeWarp, sum, distance);
    if (static_cast<int>(threadIdx.x % 32) >= distance) sum += other;
  }
  return sum - v;
}
/// sums[i] = x[0] + ... + x[i - 1] for i < n, by a warp; returns the sum of all. May be in place.
template <typename Sums>
QT_DEVICE int prefix_sums(const int32_t* x, const Sums& sums, int64_t n) {
  int sum = 0;
  for (int64_t first = 0; first < n; first += 32) {
    const int64_t i = first + threadIdx.x % 32;
    const int v = i < n ? x[i] : 0, before = sum + sum_before(v);
    if (i < n) sums[i] = before;
    sum += warp_sum(v);
  }
  return sum;
}

/// Shared memory: for each warp a row of experts and the sums of such rows; a workspace for block_sum.
struct Workspace {
  int experts;

  static constexpr size_t bytes(int64_t experts) {
    return 256 + size_t{8} * kWarps * static_cast<size_t>(experts);
  }
  __device__ simt::Shared<float> floats() const { return simt::shared<float>(0, 32); }
  __device__ simt::Shared<int32_t> ints() const { return simt::shared<int32_t>(128, 32); }
  __device__ simt::Shared<float> row(int warp) const { return at<float>(warp); }
  __device__ simt::Shared<float> sums(int warp) const { return at<float>(kWarps + warp); }
  /// In place of a warp's row.
  __device__ simt::Shared<uint32_t> counts(int warp) const { return at<uint32_t>(warp); }
  /// In place of the first row: the first packed row of each expert.
  __device__ simt::Shared<int32_t> offsets() const { return at<int32_t>(0); }

 private:
  template <typename T>
  __device__ simt::Shared<T> at(int i) const {
    return simt::shared<T>(256 + size_t{4} * static_cast<size_t>(i) * static_cast<size_t>(experts),
                           static_cast<size_t>(experts));
  }
};

/// A warp weighs every eighth token of a tile. Ranks tell only who gets no packed row.
template <typename T>
__device__ Tally weigh(const Plan& plan, const Work& to, const Tile& tile, const T* x,
                       const float* logits) {
  const Routing& r = plan.r;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int experts = static_cast<int>(r.experts);
  const auto row = Workspace{experts}.row(warp), sums = Workspace{experts}.sums(warp);
  for (int e = lane; e < experts; e += 32) sums[e] = 0;
  Tally tally{};
  for (int i = warp; i < tile.count; i += kWarps) {
    const int64_t t = tile.first + i, place = r.place(t);
    const bool padding = r.ignore_padding && (place < 0 || is_zero(x + place * r.embed, r.embed));
    for (int e = lane; e < experts; e += 32)
      row[e] = place < 0 ? 0.0f : logits[place * experts + e];
    const Softmax softmax(row, experts);
    for (int e = lane; e < experts; e += 32) {
      const float p = padding ? 0.0f : softmax(row[e]);
      row[e] = p;
      sums[e] += p;
    }
    if (lane == 0) tally += {softmax.log_sum() * softmax.log_sum(), 0, 0, padding ? 0 : 1};
    const bool goes_nowhere = padding && r.router == Router::tokens_choose;
    Choice choice;
    for (int j = 0; j < r.choices; ++j) {
      const int chosen = choice.next(row, experts, j), e = goes_nowhere ? -1 : chosen;
      if (lane != chosen % 32) continue;  // this lane has the probability
      const int64_t c = t * r.choices + j;
      to.experts[c] = e;
      to.gates[c] = e < 0 ? 0.0f : row[e];
      to.ranks[c] = {0, place < 0 || padding ? kNotPacked : uint16_t{0}};
    }
  }
  return tally;
}

/// A warp walks the j-th choices of a tile. A word counts both kinds: packed << 16 | placed.
__device__ void rank(const Plan& plan, const Work& to, const Tile& tile, int j,
                     simt::Shared<uint32_t> counts) {
  const Routing& r = plan.r;
  const int lane = static_cast<int>(threadIdx.x % 32), experts = static_cast<int>(r.experts);
  const uint32_t lower = (1u << lane) - 1;
  for (int e = lane; e < experts; e += 32) counts[e] = 0;
  __syncwarp();
  for (int first = 0; first < tile.count; first += 32) {
    const bool is_token = first + lane < tile.count;
    const int64_t c = (tile.first + first + lane) * r.choices + j;
    const int e = is_token ? to.experts[c] : -1;
    const bool is_packed = e >= 0 && to.ranks[c].packed != kNotPacked;
    const unsigned same = __match_any_sync(kWholeWarp, e);
    const unsigned packed = same & __ballot_sync(kWholeWarp, is_packed);
    const uint32_t before = e < 0 ? 0 : counts[e];
    __syncwarp();
    if (e >= 0) {
      to.ranks[c] = {
          static_cast<uint16_t>((before & 0xffff) + __popc(same & lower)),
          is_packed ? static_cast<uint16_t>((before >> 16) + __popc(packed & lower)) : kNotPacked};
      if ((same & lower) == 0)
        counts[e] = before + static_cast<uint32_t>(__popc(same)) +
                    (static_cast<uint32_t>(__popc(packed)) << 16);
    }
    __syncwarp();
  }
  for (int e = lane; e < experts; e += 32)
    to.before[(plan.segment(e, tile.group) * r.choices + j) * plan.group_tiles + tile.number] = {
        static_cast<int32_t>(counts[e] & 0xffff), static_cast<int32_t>(counts[e] >> 16)};
}

template <typename T>
__device__ void weigh_and_rank(const Plan& plan, const Work& to, int number, const T* x,
                               const float* logits) {
  const Routing& r = plan.r;
  const int warp = static_cast<int>(threadIdx.x / 32), experts = static_cast<int>(r.experts);
  const Workspace workspace{experts};
  const Tile tile = plan.tile(number);
  const Tally tally = weigh(plan, to, tile, x, logits);
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kBlockThreads) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += workspace.sums(w)[e];
    to.probabilities[plan.segment(e, tile.group) * plan.group_tiles + tile.number] = sum;
  }
  for (int j = warp; j < r.choices; j += kWarps) rank(plan, to, tile, j, workspace.counts(warp));
  const float log_sums = block_sum(tally.log_sums, workspace.floats());
  const int32_t counted = block_sum(tally.counted, workspace.ints());
  if (threadIdx.x == 0) to.tallies[number] = {log_sums, 0, 0, counted};
}

/// How many of an expert's choices in a tile get a packed row where `free` more of them are served.
__device__ int packed_within(const Plan& plan, const Work& from, int expert, int group, int entry,
                             const Before& count, int64_t free) {
  if (free <= 0) return 0;
  if (free >= count.placed) return count.packed;
  if (count.packed == count.placed) return static_cast<int>(free);
  const Tile tile = plan.tile(group * plan.group_tiles + entry % plan.group_tiles);
  int packed = 0;
  for (int i = 0; i < tile.count; ++i) {
    const int64_t c = (tile.first + i) * plan.r.choices + entry / plan.group_tiles;
    const Rank rank = from.ranks[c];
    packed += from.experts[c] == expert && rank.packed != kNotPacked && rank.placed < free ? 1 : 0;
  }
  return packed;
}

/// A block an expert, a warp every eighth of its groups.
__device__ void scan(const Plan& plan, const Work& to, int expert) {
  const Routing& r = plan.r;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int groups = plan.tiles / plan.group_tiles;
  const int entries = static_cast<int>(r.choices) * plan.group_tiles;
  float balance = 0;
  int32_t load = 0;
  for (int group = warp; group < groups; group += kWarps) {
    const int64_t segment = plan.segment(expert, group);
    Before sum{};
    for (int first = 0; first < entries; first += 32) {
      const int i = first + lane;
      Before* mine = to.before + segment * entries + i;
      const Before count = i < entries ? *mine : Before{};
      const int placed = sum.placed + sum_before(count.placed);
      const int packed = packed_within(plan, to, expert, group, i, count, r.capacity - placed);
      const Before before{placed, sum.packed + sum_before(packed)};
      if (i < entries) *mine = before;
      sum.placed += warp_sum(count.placed), sum.packed += warp_sum(packed);
    }
    for (int i = lane; i < plan.group_tiles; i += 32)
      balance += to.probabilities[segment * plan.group_tiles + i] * static_cast<float>(sum.placed);
    if (lane > 0) continue;
    to.rows[segment] = sum.packed;
    load += static_cast<int32_t>(min(int64_t{sum.placed}, r.capacity));
  }
  const Workspace workspace{static_cast<int>(r.experts)};
  balance = block_sum(balance, workspace.floats());
  load = block_sum(load, workspace.ints());
  if (warp > 0) return;
  int32_t* rows = to.rows + plan.segment(expert, 0);
  const int packed = prefix_sums(rows, rows, groups);
  if (lane == 0) to.packed[expert] = packed, to.load[expert] = load, to.balance[expert] = balance;
}

__device__ void assign_slots(const Plan& plan, const Work& from, int number, const Routes& to) {
  const Routing& r = plan.r;
  const Workspace workspace{static_cast<int>(r.experts)};
  const auto offsets = workspace.offsets();
  const Tile tile = plan.tile(number);
  float gates = 0;
  int32_t served_tokens = 0;
  for (int i = static_cast<int>(threadIdx.x); i < tile.count; i += kBlockThreads) {
    const int64_t t = tile.first + i, place = r.place(t);
    bool is_served = false;
    for (int64_t j = 0; j < r.choices; ++j) {
      const int64_t c = t * r.choices + j, at = place * r.choices + j;
      const int e = from.experts[c];
      int position = -1, row = -1;
      if (e >= 0) {
        const int64_t segment = plan.segment(e, tile.group);
        const Before before =
            from.before[(segment * r.choices + j) * plan.group_tiles + tile.number];
        const Rank rank = from.ranks[c];
        position = before.placed + rank.placed;
        if (position < r.capacity) {
          is_served = true;
          gates += from.gates[c];
          if (rank.packed != kNotPacked)
            row = offsets[e] + from.rows[segment] + before.packed + rank.packed;
        }
      }
      if (place < 0) continue;
      to.experts[at] = e;
      to.positions[at] = position;
      to.rows[at] = row;
      to.gates[at] = row < 0 ? 0.0f : from.gates[c];
      if (row >= 0 && row < to.capacity) to.choices[row] = static_cast<int32_t>(at);
    }
    served_tokens += is_served ? 1 : 0;
  }
  gates = block_sum(gates, workspace.floats());
  served_tokens = block_sum(served_tokens, workspace.ints());
  if (threadIdx.x == 0) from.tallies[number] += {0, gates, served_tokens, 0};
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    one_pass_kernel(const __grid_constant__ Plan plan, const __grid_constant__ Work work,
                    const T* x, const float* logits, const __grid_constant__ Routes to) {
  const Routing& r = plan.r;
  const int experts = static_cast<int>(r.experts);
  const Workspace workspace{experts};
  const int64_t thread = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  const int64_t threads = int64_t{gridDim.x} * kBlockThreads;

  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  for (int i = block; i < plan.tiles; i += blocks) weigh_and_rank(plan, work, i, x, logits);
  simt::grid_sync();
  for (int e = block; e < experts; e += blocks) scan(plan, work, e);
  simt::grid_sync();

  const auto offsets = workspace.offsets();
  if (threadIdx.x < 32) prefix_sums(work.packed, offsets, experts);
  __syncthreads();
  const int32_t rows = offsets[experts - 1] + work.packed[experts - 1];
  for (int i = block; i < plan.tiles; i += blocks) assign_slots(plan, work, i, to);
  for (int64_t i = rows + thread; i < to.capacity; i += threads) to.choices[i] = -1;
  for (int64_t i = thread; i < r.rows * (r.experts + 1); i += threads) {
    const int64_t e = i % (r.experts + 1);
    to.offsets[i] = e < r.experts ? int32_t{offsets[e]} : rows;
  }
  simt::grid_sync();

  if (block > 0) return;
  Tally tally{};
  float balance = 0;
  int32_t served = 0;
  for (int i = static_cast<int>(threadIdx.x); i < plan.tiles; i += kBlockThreads)
    tally += work.tallies[i];
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kBlockThreads) {
    balance += work.balance[e];
    served += work.load[e];
    to.load[e] = static_cast<float>(work.load[e]);
  }
  write_totals(r, tally, balance, served, to, workspace.floats(), workspace.ints());
}

Plan plan_for(const Routing& r) {
  const int64_t whole_warps = (r.tokens() / kTiles + 31) / 32 * 32;
  const int64_t size = std::min(std::clamp<int64_t>(whole_warps, 32, kLargestTile), r.group_size);
  const int64_t group_tiles = (r.group_size + size - 1) / size;
  return {r, static_cast<int>(size), static_cast<int>(group_tiles),
          static_cast<int>(r.local_groups() * group_tiles)};
}

}  // namespace

/// Experts that choose, and tokens whose order their gates decide, take a sort; so do more experts
/// than a block's shared memory holds.
bool can_route_in_one_pass(const Routing& r) {
  return r.router != Router::experts_choose && !r.batch_priority &&
         Workspace::bytes(r.experts) <= simt::device().shared_limit;
}

void route_in_one_pass(const Routing& r, const View& x, const float* logits, Views out,
                       Stream stream) {
  const Plan plan = plan_for(r);
  const int64_t items = r.tokens() * r.choices, segments = r.experts * r.local_groups();
  const simt::Scratch chosen(4 * items, stream), gates(4 * items, stream), ranks(4 * items, stream),
      before(8 * segments * r.choices * plan.group_tiles, stream),
      probabilities(4 * segments * plan.group_tiles, stream), rows(4 * segments, stream),
      packed(4 * r.experts, stream), load(4 * r.experts, stream), balance(4 * r.experts, stream),
      tallies(plan.tiles * static_cast<int64_t>(sizeof(Tally)), stream);
  const Work work{chosen.data<int32_t>(), gates.data<float>(),         ranks.data<Rank>(),
                  before.data<Before>(),  probabilities.data<float>(), rows.data<int32_t>(),
                  packed.data<int32_t>(), load.data<int32_t>(),        balance.data<float>(),
                  tallies.data<Tally>()};
  for_dtype(x, r.op, [&]<typename T>(T) {
    simt::Launch how{.block = kBlockThreads,
                     .shared = Workspace::bytes(r.experts),
                     .stream = stream,
                     .cooperative = true};
    const int64_t useful = std::max<int64_t>(plan.tiles, r.experts);
    how.grid =
        static_cast<unsigned>(std::min(useful, simt::resident_blocks(one_pass_kernel<T>, how)));
    simt::launch(one_pass_kernel<T>, how, plan, work, elements<T>(x, r.op, "x"), logits,
                 routes(out));
  });
}

}  // namespace quintet::QT_GPU::moe
