#pragma once
// Adafactor on a GPU in six launches over a list of arrays:
//   sums     tiles     squares of gradients summed along lines and across them, of parameters by
//                      tile; unfactored arrays: new moments, squares of update and parameter by tile
//   moments  elements  new v_row and v_col from those sums
//   means    batches   the mean of the new v_row
//   squares  tiles     squares of the unclipped update by tile (factored, if updates are clipped)
//   steps    batches   what an update is multiplied by
//   apply    tiles     the update
// A tile is up to kTileLines lines of one group by kTileColumns elements. Sums have one order. Of
// arrays that are sharded over ranks, moments, means and steps take sums over all ranks: a launch
// before each leaves the block's in AdafactorSums, which the caller adds up over the ranks.

#include "kernels/optimizers/optimizers_gpu.h"
#include "kernels/vectors/multi.cuh"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU::adafactor {

constexpr int kTileLines = 64;
constexpr int kUnit = 4;                  // elements of a thread at a time
constexpr int kHalves = 2;                // units of a thread in a line of a tile
constexpr int kHalfColumns = 32 * kUnit;  // a warp takes a line
constexpr int kTileColumns = kHalves * kHalfColumns;
constexpr int kWarps = kBlockThreads / 32;

struct Entry {
  AdafactorGpuArray a;
  // Of this step, in scratch memory:
  float* along_sums;   // [groups, member tiles, length]: squares of gradients, over a tile's lines
  float* across_sums;  // [column tiles, groups, members]: over a tile's columns
  float *along, *across;                  // the new moments to the power -1/2
  float* rows;                            // the new v_row, as v_along or v_across
  float *root_means, *steps;              // by batch: the root of v_row's mean, see steps
  float *param_squares, *update_squares;  // by tile
  int64_t first_chunk;
  int32_t vector;
};

/// Over ranks, along an axis that its sums are taken over.
inline __host__ __device__ bool is_sharded(const Entry& e) { return e.a.sums.param != nullptr; }
inline __host__ __device__ int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline __host__ __device__ int64_t member_tiles(const AdafactorShape& s) {
  return ceil_div(s.members, kTileLines);
}
inline __host__ __device__ int64_t column_tiles(const AdafactorShape& s) {
  return ceil_div(s.length, kTileColumns);
}
inline __host__ __device__ int64_t tiles(const AdafactorShape& s) {
  return s.elements == 0 ? 0 : s.groups * member_tiles(s) * column_tiles(s);
}

/// Sums of an index's steps along the axes of some kinds.
struct Steps {
  uint32_t line = 0, group = 0, across = 0, batch = 0;
};
/// `index` counts row-major over the axes whose kind is in `kinds`.
QT_DEVICE Steps steps_of(const AdafactorShape& s, unsigned kinds, uint32_t index) {
  Steps steps;
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

/// Tile number t of an array: t = (group * member tiles + member tile) * column tiles + column
/// tile.
struct Tile {
  uint32_t group, member, column;  // first ones
  uint32_t members;                // of the group
  Steps steps;                     // of the group
  int64_t number;
  // Steps of one member, where one axis has them all.
  uint32_t line_step = 0, across_step = 0;
  bool is_simple;

  __device__ Tile(const AdafactorShape& s, int64_t t) : members(s.members), number(t) {
    int axes = 0;
    for (int i = 0; i < s.axes; ++i) {
      if (s.axis[i].kind != AdafactorShape::kAcross) continue;
      ++axes;
      line_step = s.axis[i].line;
      across_step = s.axis[i].across;
    }
    is_simple = axes <= 1;
    const int64_t columns = column_tiles(s), rows = member_tiles(s);
    column = static_cast<uint32_t>(t % columns) * kTileColumns;
    member = static_cast<uint32_t>(t / columns % rows) * kTileLines;
    group = static_cast<uint32_t>(t / columns / rows);
    steps = steps_of(s, AdafactorShape::kBatch | AdafactorShape::kSame, group);
  }
};

/// A line of a tile, as a thread sees it.
struct Line {
  uint32_t member;
  int64_t begin;    // first element
  uint32_t across;  // element of v_across
  int64_t elements;
  uint32_t length;

  /// Elements of this thread's unit that exist: 0 to kUnit.
  __device__ int count(uint32_t column) const {
    const int64_t in_line = int64_t{length} - column, in_array = elements - begin - column;
    const int64_t least = in_line < in_array ? in_line : in_array;
    return least < 0 ? 0 : least > kUnit ? kUnit : static_cast<int>(least);
  }
};

/// First element of unit `half` of this thread in a line of the tile.
QT_DEVICE uint32_t unit_column(const Tile& tile, int half) {
  return tile.column + static_cast<uint32_t>(half) * kHalfColumns + threadIdx.x % 32 * kUnit;
}

/// Calls body(line) for the lines of the tile that this thread's warp takes.
template <typename Body>
QT_DEVICE void for_lines(const AdafactorShape& s, const Tile& tile, const Body& body) {
  const uint32_t end = tile.member + kTileLines < s.members ? tile.member + kTileLines : s.members;
#pragma unroll 2
  for (uint32_t m = tile.member + threadIdx.x / 32; m < end; m += kWarps) {
    Steps steps;
    if (tile.is_simple) {
      steps.line = m * tile.line_step;
      steps.across = m * tile.across_step;
    } else {
      steps = steps_of(s, AdafactorShape::kAcross, m);
    }
    body(Line{m, int64_t{tile.steps.line + steps.line} * s.length, tile.steps.across + steps.across,
              s.elements, s.length});
  }
}

/// `count` <= kUnit elements at p, zeros beyond. kConstant: no thread writes them.
template <bool kConstant = false>
QT_DEVICE void load_some(const float* p, int count, bool vector, float (&v)[kUnit]) {
  if (vector && count == kUnit) {
    if constexpr (kConstant)
      return load_constant<kUnit>(p, v);
    else
      return load<kUnit>(p, v);
  }
#pragma unroll
  for (int k = 0; k < kUnit; ++k) v[k] = k < count ? p[k] : 0.0f;
}
QT_DEVICE void load_some(const bf16* p, int count, bool vector, float (&v)[kUnit]) {
  if (vector && count == kUnit) return load<kUnit>(p, v);
#pragma unroll
  for (int k = 0; k < kUnit; ++k) v[k] = k < count ? simt::to_float(p[k]) : 0.0f;
}
template <typename T>
QT_DEVICE void store_some(T* p, int count, bool vector, const float (&v)[kUnit]) {
  if (vector && count == kUnit) return store<kUnit>(p, v);
#pragma unroll
  for (int k = 0; k < kUnit; ++k)
    if (k < count) p[k] = simt::from_float<T>(v[k]);
}
/// Those from the i-th on; zeros where there is no gradient.
QT_DEVICE void load_gradient(const FloatPointer& gradient, int64_t i, int count, bool vector,
                             float (&v)[kUnit]) {
  if (gradient.pointer == nullptr) count = 0;
  if (gradient.is_bf16)
    load_some(static_cast<const bf16*>(gradient.pointer) + i, count, vector, v);
  else
    load_some<true>(static_cast<const float*>(gradient.pointer) + i, count, vector, v);
}

/// Numbers of the step as the kernels use them.
struct Numbers {
  AdafactorStep step;
  const UpdateControl* control;

  __device__ bool skips() const { return control != nullptr && control->skip != 0; }
  __device__ float gradient_scale() const {
    return control == nullptr ? step.gradient_scale : step.gradient_scale * control->scale;
  }
};

/// A sharded array's sums are taken and sent first, then used as those of all ranks.
enum class Phase : uint8_t { sum, use };

/// The new value of a state, which stays what it was where a NaN is skipped.
QT_DEVICE float kept(const AdafactorStep& step, float next, float old) {
  return step.skip_nan && next != next ? old : next;
}
/// max(a, b) that is NaN if b is.
QT_DEVICE float nan_max(float a, float b) { return b != b || b > a ? b : a; }

}  // namespace quintet::QT_GPU::adafactor
