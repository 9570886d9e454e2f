#pragma once
// Adafactor on a GPU in one launch over a list of arrays. A matrix is one batch of an array, a tile up to
// kTileLines of its lines by kTileColumns elements. A tile goes through four phases, and each but the
// last needs the one before it done of its whole matrix:
//   sums     squares of gradients, along lines and across them; unfactored arrays: new moments
//   moments  new v_row and v_col from those sums, and what their mean is made of
//   squares  of the unclipped update, if updates are clipped, and of the parameter, unless the update
//            before has left them
//   apply    the update
// Matrices are taken in windows. The blocks, all resident together, take a window's tiles in turn, and
// between two phases of one window they do another one of its neighbour, so that waiting for the slowest
// block costs little:
//   squares of w | sums of w + 1 | apply of w, first tile | moments of w + 1 | apply of w, others
// Until its update a tile's gradient stays in its block's shared memory, as far as that goes
// (Pipeline::slots), and its parameter, if it is read twice, in the second-level cache. All sums have one
// order, which depends on shapes alone.
//
// Of arrays that are sharded over ranks, moments, means and steps take sums over all ranks. The kernel does
// these a few phases a launch (Stage) and leaves the block's sums in AdafactorSums, which the caller adds up
// over the ranks between two launches; sums of tiles stay from one launch to the next. Where rows or columns
// are not sharded, the moments across them are known from the block alone, and one exchange does: the squares
// of the update are those of gradients times the one moment's factors, summed along the other moment
// (`weighted`), times the other one's, which follow from the same exchange:
//   sum of (g_ij r_i c_j)^2 = sum over j of c_j^2 * (sum over i of (g_ij r_i)^2)
// Sums, moments and weighted sums are one launch then, which finds gradients again as above.

#include "kernels/optimizers/adafactor.h"
#include "kernels/optimizers/optimizers_gpu.h"
#include "kernels/simt/fault.cuh"
#include "kernels/vectors/multi.cuh"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU::adafactor {

constexpr int kTileLines = kAdafactorTileLines, kTileColumns = kAdafactorTileColumns;
constexpr int kUnit = kTileColumns / 32;  // elements of a thread at a time: a warp takes a line
constexpr int kWarps = kBlockThreads / 32;
constexpr int kWarpLines = kTileLines / kWarps;
// Lines that a warp loads before it uses the first; where there are more operands.
constexpr int kLoads = 4, kFullLoads = 2;
static_assert(kUnit == 4 && kTileLines % kWarps == 0 && kWarpLines % kLoads == 0);
static_assert(kBlockThreads % kTileColumns == 0 && kBlockThreads % kTileLines == 0);

struct Entry {
  AdafactorGpuArray a;
  int64_t first_chunk;  // tile
};

/// Over ranks, along an axis that its sums are taken over.
inline __host__ __device__ bool is_sharded(const Entry& e) { return e.a.sums.param != nullptr; }
/// Along rows and along columns.
inline __host__ __device__ bool is_sharded_both_ways(const Entry& e) {
  return e.a.sums.rows != nullptr && e.a.sums.columns != nullptr;
}
/// Sums of a sharded factored array's moment, unless the block has all of them.
QT_DEVICE double* exchanged_moment(const Entry& e, bool along) {
  return along == e.a.shape.along_is_row ? e.a.sums.rows : e.a.sums.columns;
}
/// Sums of an index's steps along the axes of some kinds.
struct Steps {
  uint32_t line = 0, group = 0, across = 0, batch = 0;
};
/// `index` counts row-major over the axes whose kind is in `kinds`.
QT_DEVICE Steps steps_of(const AdafactorShape& s, unsigned kinds, uint32_t index) {
  Steps steps;
#pragma unroll 1
  for (int i = s.axes - 1; i >= 0; --i) {
    const AdafactorShape::Axis& axis = s.axis[i];
    if ((axis.kind & kinds) == 0) continue;
    const uint32_t place = index % axis.size;
    index /= axis.size;
    steps.line += place * axis.line;
    steps.group += place * axis.group;
    steps.across += place * axis.across;
    steps.batch += place * axis.batch;
  }
  return steps;
}

/// Scratch memory of a window, or of all tiles where launches leave it to one another.
struct Sums {
  /// By tile. `along`: squares of gradients over the tile's lines, kTileColumns of them; once the
  /// moments are made, those to the power -1/2, in the tiles of the first members. `across`: over its
  /// columns, kTileLines; then those powers, in the tiles of the first group and columns. Weighted
  /// squares stand where the squares did that the exchanged moment is made of.
  float *along, *across;
  double* rows;  // sum of the new v_row where the powers are
  /// Squares. Of weighted ones the sum where the powers of the exchanged moment are, without the mean of v_row.
  double* update;
  float* param;  // squares
  static_assert(kAdafactorTileBytes ==
                4 * (kTileColumns + kTileLines + 2 + 2 + 1 + /*alignment*/ 3));

  /// For `tiles` tiles; only those from `first` on.
  __device__ Sums(float* at, uint32_t tiles, uint32_t first)
      : along(at),
        across(along + int64_t{tiles} * kTileColumns),
        rows(reinterpret_cast<double*>(across + int64_t{tiles} * kTileLines)),
        update(rows + tiles),
        param(reinterpret_cast<float*>(update + tiles)) {
    along += int64_t{first} * kTileColumns, across += int64_t{first} * kTileLines;
    rows += first, update += first, param += first;
  }
};

/// One of a window: of matrix b of an array, number (group of b * member tiles + member tile) * column
/// tiles + column tile.
struct Tile {
  const Entry& e;
  uint32_t index;               // in the window
  uint32_t first;               // index of the matrix's first
  uint32_t columns, rows;       // tiles of a group of the matrix
  uint32_t group, row, column;  // place in the matrix
  Steps steps;                  // of the group

  /// `tile` of the table, `begin` the window's first.
  __device__ Tile(const Table<Entry>& table, uint32_t tile, uint32_t begin)
      : e(entry_of(table, tile)), index(tile - begin) {
    const AdafactorShape& s = e.a.shape;
    columns = adafactor_column_tiles(s), rows = adafactor_member_tiles(s);
    const uint32_t number = tile - static_cast<uint32_t>(e.first_chunk);
    const uint32_t each = s.groups / s.batches * rows * columns, in_matrix = number % each;
    first = index - in_matrix;
    column = in_matrix % columns;
    row = in_matrix / columns % rows;
    group = in_matrix / columns / rows;
    const Steps of_batch = steps_of(s, AdafactorShape::kBatch, number / each);
    const Steps of_group = steps_of(s, AdafactorShape::kSame, group);
    steps = {of_batch.line + of_group.line, of_batch.group + of_group.group, of_batch.across,
             of_batch.batch};
  }

  __device__ const AdafactorShape& shape() const { return e.a.shape; }
  __device__ uint32_t batch() const { return steps.batch; }
  __device__ uint32_t first_member() const { return row * kTileLines; }
  __device__ uint32_t first_column() const { return column * kTileColumns; }
  /// Where the powers of its moments are.
  __device__ uint32_t along() const { return first + group * rows * columns + column; }
  __device__ uint32_t across() const { return first + row * columns; }
};

/// The elements of this thread in a line of a tile. kVector: all of them are there, or none.
template <bool kVector>
struct Unit {
  uint32_t line;   // of the tile
  int64_t begin;   // first element
  int count;       // 0 to kUnit
  uint32_t place;  // among a tile's in shared memory
};

// Shared memory: 32 doubles for sums of the block, where lines begin, sums of its warps, held gradients.
constexpr size_t kLinesAt = 256, kRowsAt = kLinesAt + kTileLines * sizeof(int64_t),
                 kHeldAt = kRowsAt + kWarps * kTileColumns * sizeof(float);
static_assert(kWarps * kTileColumns * sizeof(float) >= kBlockThreads * sizeof(double));
QT_DEVICE simt::Shared<double> workspace() { return simt::shared<double>(0, 32); }

/// load(unit, operands) and then use(unit, operands) for all units of this thread, several loads
/// ahead. Both are called by whole warps, also where there is no line.
template <bool kVector, typename Operands, int kMost, typename Load, typename Use>
QT_DEVICE void for_units_of(const Tile& tile, const Load& load, const Use& use) {
  const AdafactorShape& s = tile.shape();
  const auto begins = simt::shared<int64_t>(kLinesAt, kTileLines);
  __syncthreads();
  if (const uint32_t line = threadIdx.x, member = tile.first_member() + line; line < kTileLines)
    begins[line] =
        member >= s.members
            ? s.elements  // no line
            : int64_t{tile.steps.line + steps_of(s, AdafactorShape::kAcross, member).line} *
                  s.length;
  __syncthreads();
  const uint32_t column = tile.first_column() + threadIdx.x % 32 * kUnit;
  const auto unit = [&](int turn) {
    Unit<kVector> u;
    u.line = threadIdx.x / 32 + static_cast<uint32_t>(turn) * kWarps;
    u.begin = begins[u.line] + column;
    u.place = static_cast<uint32_t>(turn) * kBlockThreads + threadIdx.x;
    const int64_t in_line = int64_t{s.length} - column, in_array = s.elements - u.begin;
    const int64_t least = in_line < in_array ? in_line : in_array;
    u.count = least <= 0 ? 0 : kVector || least > kUnit ? kUnit : static_cast<int>(least);
    return u;
  };
  constexpr int kAhead = kVector ? kMost : 1;
  static_assert(kWarpLines % kAhead == 0);
#pragma unroll 1
  for (int turn = 0; turn < kWarpLines; turn += kAhead) {
    Operands operands[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) load(unit(turn + j), operands[j]);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) use(unit(turn + j), operands[j]);
  }
}

/// kUnit elements as they are in memory: float32, or bfloat16 in the first half.
struct Words {
  uint32_t words[kUnit];
};
/// `unit` of x, zeros where it has no elements or x is null.
template <bool kVector>
QT_DEVICE void load_unit(const void* x, bool is_bf16, const Unit<kVector>& unit, Words& to) {
  const int count = x == nullptr ? 0 : unit.count;
#pragma unroll
  for (int k = 0; k < kUnit; ++k) to.words[k] = 0;
  if (count == 0) return;
  if (is_bf16) {
    const bf16* from = static_cast<const bf16*>(x) + unit.begin;
    uint32_t two[kUnit / 2] = {};
    if constexpr (kVector) {
      load_words(from, two);
    } else {
#pragma unroll
      for (int k = 0; k < kUnit; ++k)
        if (k < count) two[k / 2] |= static_cast<uint32_t>(from[k].bits) << 16 * (k % 2);
    }
#pragma unroll
    for (int k = 0; k < kUnit / 2; ++k) to.words[k] = two[k];
  } else {
    const float* from = static_cast<const float*>(x) + unit.begin;
    if constexpr (kVector) {
      load_words(from, to.words);
    } else {
#pragma unroll
      for (int k = 0; k < kUnit; ++k)
        if (k < count) to.words[k] = __float_as_uint(from[k]);
    }
  }
}
QT_DEVICE void unpack(const Words& from, bool is_bf16, float (&v)[kUnit]) {
  if (is_bf16) {
    const uint32_t two[kUnit / 2] = {from.words[0], from.words[1]};
    unpack_words<bf16>(two, v);
  } else {
    unpack_words<float>(from.words, v);
  }
}
template <bool kVector, typename T>
QT_DEVICE void store_unit(T* x, const Unit<kVector>& unit, const float (&v)[kUnit]) {
  T* const to = x + unit.begin;
  if constexpr (kVector) {
    if (unit.count != 0) store<kUnit>(to, v);
  } else {
#pragma unroll
    for (int k = 0; k < kUnit; ++k)
      if (k < unit.count) to[k] = simt::from_float<T>(v[k]);
  }
}

/// Numbers of the step as the kernels use them.
struct Numbers {
  AdafactorStep step;
  const UpdateControl* control;
  FaultSlot* fault;

  __device__ bool skips() const { return control != nullptr && control->skip != 0; }
  __device__ float gradient_scale() const {
    return control == nullptr ? step.gradient_scale : step.gradient_scale * control->scale;
  }
};

/// What a launch does.
enum Stage : uint32_t {
  kSums = 1,
  kSendMoments = 2,  // the sums for the other ranks; moments that need none of them
  kMoments = 4,
  kSendMeans = 8,
  kSquares = 16,
  kSendSquares = 32,
  kApply = 64,
  kAll = kSums | kMoments | kSquares | kApply,  // of arrays that are not sharded
  // Around the one exchange of arrays that are not sharded both ways.
  kBeforeExchange = kSums | kSendMoments | kSendMeans | kSquares | kSendSquares,
  kAfterExchange = kMoments | kApply,
};

/// How blocks go over the tiles of a launch.
struct Pipeline {
  uint32_t stages;
  uint32_t tiles;   // of the launch
  uint32_t window;  // its most tiles, but that it has one whole matrix
  uint32_t
      scratch_tiles;  // of the largest window; of the launch where other launches need its sums
  float* scratch;     // kRing * scratch_tiles * kAdafactorTileBytes, or scratch_tiles of them
  uint32_t slots;     // gradients of so many tiles are held by a block
  static constexpr uint32_t kRing = kAdafactorWindows;

  /// kStages: `stages` if they are known when compiling, else 0, and kApply is none of them.
  template <uint32_t kStages>
  __device__ bool does(Stage stage) const {
    return ((kStages != 0 ? kStages : stages & ~kApply) & stage) != 0;
  }
  /// Tiles of a window whose gradients are held: half of the slots' until the update, which comes after the
  /// next window's sums.
  __device__ uint32_t held() const { return gridDim.x * slots / (stages == kAll ? 2 : 1); }
};

/// Tiles [begin, end) of a launch.
struct Window {
  uint32_t begin = 0, end = 0;
  uint32_t held_before = 0;  // by the windows before it
  uint32_t number = ~0u;

  __device__ bool empty() const { return begin == end; }
  /// The matrices after it. After one of more than two windows' tiles it is empty, so that the update of
  /// such a matrix follows its squares at once: the sums of others between the two would drive what both
  /// read out of the second-level cache.
  __device__ Window next(const Table<Entry>& table, const Pipeline& pipeline) const {
    const uint32_t size = end - begin, most = pipeline.held();
    Window w{end, end, held_before + (size < most ? size : most), number + 1};
    if (end == pipeline.tiles || size > 2 * pipeline.window) return w;
    const int count = static_cast<int>(table.count);
#pragma unroll 1
    for (int i = entry_index(table, end); i < count; ++i) {
      const AdafactorShape& s = table.entries[i].a.shape;
      const auto each = static_cast<uint32_t>(adafactor_matrix_tiles(s));
      const uint32_t left =
          static_cast<uint32_t>(table.entries[i].first_chunk) + each * s.batches - w.end;
      const uint32_t fit = (pipeline.window - (w.end - w.begin)) / each * each;
      w.end += fit < left ? fit : left;
      if (fit < left) {
        if (w.empty()) w.end += each;
        break;
      }
    }
    return w;
  }
  /// This block's first tile of the window, from begin; every gridDim.x-th after it is its too.
  __device__ uint32_t first() const {
    const uint32_t skipped = held_before % gridDim.x;
    return blockIdx.x >= skipped ? blockIdx.x - skipped : blockIdx.x + gridDim.x - skipped;
  }
};

/// The new value of a state, which stays what it was where a NaN is skipped.
QT_DEVICE float kept(const AdafactorStep& step, float next, float old) {
  return step.skip_nan && next != next ? old : next;
}
/// Rounded once: phases that take the squares of the same numbers in the same order have the same sum.
QT_DEVICE void add_square(float& sum, float x) { sum = __fmaf_rn(x, x, sum); }
/// max(a, b) that is NaN if b is.
QT_DEVICE float nan_max(float a, float b) { return b != b || b > a ? b : a; }

constexpr int kTileFloats = kTileLines * kTileColumns;
constexpr size_t kSlotBytes = kTileFloats * sizeof(float);
static_assert(kWarpLines * kBlockThreads * kUnit == kTileFloats);  // Unit::place of a tile
constexpr uint32_t kMostSlots = 3;

/// No place in a block's shared memory.
constexpr int kNotHeld = -1;

/// What the phases of a tile know of the launch and of the tile's window. kStages: of adafactor_kernel.
template <uint32_t kStages>
struct Work {
  const Numbers& numbers;
  const Pipeline& pipeline;
  Sums sums;
  uint32_t begin, held_before;  // of the window

  __device__ const AdafactorStep& step() const { return numbers.step; }
  __device__ bool does(Stage stage) const { return pipeline.template does<kStages>(stage); }
  /// Null what no array of the launch has.
  __device__ AdafactorSums of_ranks(const Tile& tile) const {
    if (kStages == kAll) return {};
    AdafactorSums sums = tile.e.a.sums;
    if (kStages == 0) sums.weighted = nullptr;
    return sums;
  }
  /// Its gradients' slot in this block's shared memory, or kNotHeld.
  __device__ int slot(const Tile& tile) const {
    if (tile.index >= pipeline.held()) return kNotHeld;
    return static_cast<int>((held_before + tile.index) / gridDim.x % pipeline.slots);
  }
};

/// A tile's scaled gradients, held by the block or read from memory.
template <bool kVector>
struct Gradients {
  const void* const from;
  const bool is_bf16;
  const float scale;
  const bool held;
  simt::Shared<float> slot{};

  /// held_slot: Work::slot, or kNotHeld before they are held.
  template <uint32_t kStages>
  __device__ Gradients(const Entry& e, const Work<kStages>& work, int held_slot)
      : from(e.a.gradient.pointer),
        is_bf16(e.a.gradient.is_bf16),
        scale(work.numbers.gradient_scale()),
        held(held_slot != kNotHeld) {
    if (held) slot = place(held_slot);
  }
  static __device__ simt::Shared<float> place(int slot) {
    return simt::shared<float>(kHeldAt + static_cast<size_t>(slot) * kSlotBytes, kTileFloats);
  }
  __device__ void load(const Unit<kVector>& unit, Words& words) const {
    if (!held) load_unit(from, is_bf16, unit, words);
  }
  __device__ void scaled(const Unit<kVector>& unit, const Words& words, float (&g)[kUnit]) const {
    if (held) {
      uint32_t bits[kUnit];
      load_words(slot + unit.place * kUnit, bits);
      return unpack_words<float>(bits, g);
    }
    unpack(words, is_bf16, g);
#pragma unroll
    for (int k = 0; k < kUnit; ++k) g[k] *= scale;
  }
};

/// To be found by Gradients in a later phase.
template <bool kVector>
__device__ void hold_unit(const simt::Shared<float>& slot, const Unit<kVector>& unit,
                          const float (&g)[kUnit]) {
  uint32_t bits[kUnit];
  pack_words<float>(g, bits);
  store_words(slot + unit.place * kUnit, bits);
}

}  // namespace quintet::QT_GPU::adafactor
