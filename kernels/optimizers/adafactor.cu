#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/optimizers/adafactor.cuh"
#include "kernels/optimizers/watch.cuh"
#include "kernels/simt/host/scratch.h"
#include "kernels/simt/resident.cuh"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {
namespace adafactor {
namespace {

/// 1 / sqrt(x), rounded correctly twice.
__device__ float inverse_root(float x) { return 1.0f / sqrtf(x); }

constexpr int kTileFloats = kTileLines * kTileColumns;
constexpr size_t kSlotBytes = kTileFloats * sizeof(float);
static_assert(kWarpLines * kBlockThreads * kUnit == kTileFloats);  // Unit::place of a tile
constexpr uint32_t kMostSlots = 3;

/// No place in a block's shared memory.
constexpr int kNotHeld = -1;

/// What the phases of a tile know of the launch and of the tile's window. kHolds: blocks hold gradients.
template <bool kHolds>
struct Work {
  const Numbers& numbers;
  const Pipeline& pipeline;
  Sums sums;
  uint32_t begin, held_before;  // of the window

  __device__ const AdafactorStep& step() const { return numbers.step; }
  /// Its gradients' slot in this block's shared memory, or kNotHeld.
  __device__ int slot(const Tile& tile) const {
    if (!kHolds || tile.index >= pipeline.held()) return kNotHeld;
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
  template <bool kHolds>
  __device__ Gradients(const Entry& e, const Work<kHolds>& work, int held_slot)
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

/// Squares of gradients by column, summed over the warps' lines in order, into the tile's sums.
template <bool kHolds>
__device__ void store_column_sums(const Tile& tile, const Work<kHolds>& work,
                                  const float (&sums)[kUnit]) {
  auto rows = simt::shared<float>(kRowsAt, kWarps * kTileColumns);
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kUnit; ++k)
    rows[threadIdx.x / 32 * kTileColumns + threadIdx.x % 32 * kUnit + static_cast<uint32_t>(k)] =
        sums[k];
  __syncthreads();
  if (threadIdx.x >= kTileColumns) return;
  float total = 0;
  for (int w = 0; w < kWarps; ++w) total += rows[w * kTileColumns + threadIdx.x];
  work.sums.along[int64_t{tile.index} * kTileColumns + threadIdx.x] = total;
}

template <bool kVector, bool kHolds>
__device__ void factored_sums(const Tile& tile, const Work<kHolds>& work) {
  const Gradients<kVector> gradients(tile.e, work, kNotHeld);
  const int slot = work.slot(tile);
  const auto hold = slot == kNotHeld ? simt::Shared<float>{} : Gradients<kVector>::place(slot);
  float* const across = work.sums.across + int64_t{tile.index} * kTileLines;
  float columns[kUnit] = {};
  for_units_of<kVector, Words, kLoads<kHolds>>(
      tile, [&](const Unit<kVector>& unit, Words& words) { gradients.load(unit, words); },
      [&](const Unit<kVector>& unit, const Words& words) {
        float g[kUnit], of_line = 0;
        gradients.scaled(unit, words, g);
#pragma unroll
        for (int k = 0; k < kUnit; ++k) {
          const float square = g[k] * g[k];
          columns[k] += square;
          of_line += square;
        }
        if (slot != kNotHeld) hold_unit(hold, unit, g);
        of_line = warp_sum(of_line);
        if (threadIdx.x % 32 == 0) across[unit.line] = of_line;
      });
  store_column_sums(tile, work, columns);
}

/// New moments of an unfactored array, and the squares of its unclipped update.
template <bool kVector, bool kHolds>
__device__ void full_moments(const Tile& tile, const Work<kHolds>& work) {
  struct Operands {
    Words g, v;
  };
  const Entry& e = tile.e;
  const AdafactorStep& step = work.step();
  const Gradients<kVector> gradients(tile.e, work, kNotHeld);
  const int slot = work.slot(tile);
  const auto hold = slot == kNotHeld ? simt::Shared<float>{} : Gradients<kVector>::place(slot);
  const auto epsilon = static_cast<float>(step.epsilon1);
  float of_update = 0, bad = 0;
  for_units_of<kVector, Operands, kFullLoads<kHolds>>(
      tile,
      [&](const Unit<kVector>& unit, Operands& from) {
        gradients.load(unit, from.g);
        load_unit(e.a.v, false, unit, from.v);
      },
      [&](const Unit<kVector>& unit, const Operands& from) {
        float g[kUnit], v[kUnit];
        gradients.scaled(unit, from.g, g);
        unpack(from.v, false, v);
#pragma unroll
        for (int k = 0; k < kUnit; ++k) {
          const float next = step.decay * v[k] + step.mixing * (g[k] * g[k] + epsilon);
          const float update = k < unit.count ? g[k] * inverse_root(next) : 0.0f;
          v[k] = kept(step, next, v[k]);
          if (k < unit.count) watch(bad, v[k]);
          of_update += update * update;
        }
        if (slot != kNotHeld) hold_unit(hold, unit, g);
        store_unit(e.a.v, unit, v);
      });
  mark_if(bad, e.a.not_finite);
  const double update = block_sum(static_cast<double>(of_update), workspace());
  if (threadIdx.x == 0) work.sums.update[tile.index] = static_cast<float>(update);
}

template <bool kVector, bool kHolds>
__device__ void take_sums(const Tile& tile, const Work<kHolds>& work) {
  if (tile.shape().factored)
    factored_sums<kVector>(tile, work);
  else
    full_moments<kVector>(tile, work);
}

/// Sum over the threads of an element, those that are equal modulo `elements`, in order, on the first.
__device__ double sum_of_element(double sum, uint32_t elements) {
  auto sums = simt::shared<double>(kRowsAt, kBlockThreads);
  __syncthreads();
  sums[threadIdx.x] = sum;
  __syncthreads();
  double total = 0;
  if (threadIdx.x < elements)
    for (uint32_t t = threadIdx.x; t < kBlockThreads; t += elements) total += sums[t];
  return total;
}

/// Moment i from the sum of squares that it averages: the state, and the update's factor to `factor`.
/// Returns the new moment.
__device__ float store_moment(const Entry& e, const AdafactorStep& step, double sum, double count,
                              float* state, float* factor) {
  const auto mean = static_cast<float>(sum / count + step.epsilon1);
  const float next = step.decay * *state + step.mixing * mean;
  *state = kept(step, next, *state);
  float bad = 0;
  watch(bad, *state);
  mark_if(bad, e.a.not_finite);
  *factor = inverse_root(next);
  return next;
}

/// The moments along the lines of a tile's columns, or across those of its members: `elements` of them
/// from `first` on in v_along or v_across, of which this thread has one, threadIdx.x modulo kMost.
/// partial(part): the part-th of `parts` numbers that make its sum. Factors go to `factors`.
template <uint32_t kMost, bool kHolds, typename Partial>
__device__ void make_moments(const Tile& tile, const Work<kHolds>& work, bool is_row,
                             uint32_t elements, int64_t place, uint32_t parts, double count,
                             float* factors, const Partial& partial) {
  const Entry& e = tile.e;
  const bool sends = work.pipeline.does(kSendMoments), exchanged = !sends && is_sharded(e);
  const uint32_t i = threadIdx.x % kMost;
  double sum = 0;
  if (i < elements && !exchanged)
#pragma unroll 4
    for (uint32_t part = threadIdx.x / kMost; part < parts; part += kBlockThreads / kMost)
      sum += static_cast<double>(partial(part));
  sum = sum_of_element(sum, kMost);
  double of_rows = 0;
  if (threadIdx.x < elements) {
    double* const all = (is_row ? e.a.sums.rows : e.a.sums.columns) + place;
    if (sends)
      *all = sum;
    else
      of_rows =
          static_cast<double>(store_moment(e, work.step(), exchanged ? *all : sum, count,
                                           (is_row ? e.a.v_row : e.a.v_col) + place, factors + i));
  }
  if (!is_row || sends) return;
  of_rows = block_sum(of_rows, workspace());
  if (threadIdx.x == 0) work.sums.rows[tile.index] = of_rows;
}

/// v_along: sums over tiles of members.
template <bool kHolds>
__device__ void along_moments(const Tile& tile, const Work<kHolds>& work) {
  const AdafactorShape& s = tile.shape();
  const uint32_t left = s.length - tile.first_column();
  const float* const from =
      work.sums.along + int64_t{tile.index} * kTileColumns + threadIdx.x % kTileColumns;
  make_moments<kTileColumns>(
      tile, work, s.along_is_row, left < kTileColumns ? left : kTileColumns,
      int64_t{tile.steps.group} * s.length + tile.first_column() + threadIdx.x % kTileColumns,
      tile.rows, s.along_count, work.sums.along + int64_t{tile.index} * kTileColumns,
      [&](uint32_t row) { return from[int64_t{row} * tile.columns * kTileColumns]; });
}

/// v_across: sums over tiles of columns, and over the groups of a matrix.
template <bool kHolds>
__device__ void across_moments(const Tile& tile, const Work<kHolds>& work) {
  const AdafactorShape& s = tile.shape();
  const uint32_t left = s.members - tile.first_member(), i = threadIdx.x % kTileLines;
  const float* const from = work.sums.across + int64_t{tile.index} * kTileLines + i;
  make_moments<kTileLines>(
      tile, work, !s.along_is_row, left < kTileLines ? left : kTileLines,
      int64_t{tile.steps.across} +
          steps_of(s, AdafactorShape::kAcross, tile.first_member() + i).across,
      s.groups / s.batches * tile.columns, s.across_count,
      work.sums.across + int64_t{tile.index} * kTileLines, [&](uint32_t part) {
        const uint32_t group = part / tile.columns, column = part % tile.columns;
        return from[(int64_t{group} * tile.rows * tile.columns + column) * kTileLines];
      });
}

template <bool kHolds>
__device__ void take_moments(const Tile& tile, const Work<kHolds>& work) {
  if (!tile.shape().factored) return;
  if (tile.row == 0) along_moments(tile, work);
  if (tile.group == 0 && tile.column == 0) across_moments(tile, work);
}

/// Sum over the tiles of a matrix.
__device__ double sum_of_tiles(const Tile& tile, const float* squares) {
  const auto count = static_cast<uint32_t>(adafactor_matrix_tiles(tile.shape()));
  double sum = 0;
#pragma unroll 4
  for (uint32_t t = threadIdx.x; t < count; t += kBlockThreads)
    sum += static_cast<double>(squares[tile.first + t]);
  return block_sum(sum, workspace());
}
/// Of the new v_row of a matrix, from the tiles that made it.
__device__ double sum_of_rows(const Tile& tile, const double* rows) {
  const AdafactorShape& s = tile.shape();
  const uint32_t step = s.along_is_row ? tile.columns : 1, every = tile.rows * tile.columns;
  const uint32_t count = s.along_is_row ? s.groups / s.batches * tile.columns : tile.rows;
  double sum = 0;
#pragma unroll 1
  for (uint32_t j = threadIdx.x; j < count; j += kBlockThreads)
    sum += rows[tile.first + (s.along_is_row ? j / step * every + j % step : j * tile.columns)];
  return block_sum(sum, workspace());
}

/// For the other ranks; all blocks with a tile of the matrix have the same sum.
__device__ void send(double* to, double sum) {
  if (threadIdx.x == 0) *to = sum;
}

/// What the update of a factored matrix is multiplied by for all rows: v_row is divided by its mean
/// before its root is taken.
template <bool kHolds>
__device__ float root_mean(const Tile& tile, const Work<kHolds>& work) {
  if (!tile.shape().factored) return 1;
  const bool sends = work.pipeline.does(kSendMeans);
  double* const means = tile.e.a.sums.means;
  const double sum =
      sends || means == nullptr ? sum_of_rows(tile, work.sums.rows) : means[tile.batch()];
  if (sends) send(means + tile.batch(), sum);
  return sqrtf(static_cast<float>(sum / tile.shape().rows()));
}

/// Factors of a factored update in one tile: gradient * along * across.
struct Factors {
  float along[kUnit];
  const float* across_of;
  float mean;

  template <bool kHolds>
  __device__ Factors(const Tile& tile, const Work<kHolds>& work, float root_mean)
      : across_of(work.sums.across + int64_t{tile.across()} * kTileLines), mean(root_mean) {
    // Beyond the last column it is anything, and not used.
    load<kUnit>(work.sums.along + int64_t{tile.along()} * kTileColumns + threadIdx.x % 32 * kUnit,
                along);
  }
  template <bool kVector>
  __device__ float across(const Unit<kVector>& unit) const {
    return across_of[unit.line] * mean;
  }
};

/// Squares of a tile's parameter before its update and after it.
struct ParamSquares {
  float before = 0, after = 0;
};
/// Where the updates of the parameter leave its squares for the next one, or null.
template <bool kHolds>
__device__ float* param_squares(const Tile& tile, const Work<kHolds>& work) {
  const Entry& e = tile.e;
  if (!kHolds || e.a.param_squares == nullptr) return nullptr;
  return e.a.param_squares + (work.begin + tile.index - static_cast<uint32_t>(e.first_chunk));
}

/// Squares of the unclipped update of a factored array, if they are to be known, and of the parameter.
template <bool kVector, bool kHolds>
__device__ void take_squares(const Tile& tile, const Work<kHolds>& work, float root_mean) {
  struct Operands {
    Words g, p;
    float across;
  };
  const Entry& e = tile.e;
  const bool of_update = e.a.shape.factored && work.step().clipping_threshold != 0;
  bool of_param = e.a.scaled_by_param;
  if (const float* left = param_squares(tile, work);
      left != nullptr && __float_as_uint(*left) != ~0u) {
    if (threadIdx.x == 0) work.sums.param[tile.index] = *left;
    of_param = false;
  }
  if (!of_update && !of_param) return;
  const Gradients<kVector> gradients(tile.e, work, work.slot(tile));
  const Factors factors(tile, work, root_mean);
  float update = 0, param = 0;
  for_units_of<kVector, Operands, kLoads<kHolds>>(
      tile,
      [&](const Unit<kVector>& unit, Operands& from) {
        if (of_update) gradients.load(unit, from.g), from.across = factors.across(unit);
        if (of_param) load_unit(e.a.param, false, unit, from.p);
      },
      [&](const Unit<kVector>& unit, const Operands& from) {
        float g[kUnit], p[kUnit];
        if (of_update) {
          gradients.scaled(unit, from.g, g);
#pragma unroll
          for (int k = 0; k < kUnit; ++k) {
            // Beyond the array's end factors may be infinite.
            const float u = k < unit.count ? g[k] * from.across * factors.along[k] : 0.0f;
            update += u * u;
          }
        }
        if (!of_param) return;
        unpack(from.p, false, p);
#pragma unroll
        for (int k = 0; k < kUnit; ++k) add_square(param, p[k]);
      });
  const double updates = block_sum(static_cast<double>(update), workspace());
  const double params = block_sum(static_cast<double>(param), workspace());
  if (threadIdx.x != 0) return;
  if (of_update) work.sums.update[tile.index] = static_cast<float>(updates);
  if (of_param) work.sums.param[tile.index] = static_cast<float>(params);
}

/// The squares of a matrix, of all ranks unless this launch sends those of its block.
template <bool kHolds>
__device__ double squares_of_matrix(const Tile& tile, const Work<kHolds>& work, double* exchanged,
                                    const float* by_tile) {
  const bool sends = work.pipeline.does(kSendSquares);
  if (!sends && exchanged != nullptr) return exchanged[tile.batch()];
  const double sum = sum_of_tiles(tile, by_tile);
  if (sends) send(exchanged + tile.batch(), sum);
  return sum;
}

/// What a matrix's unclipped update is multiplied by, from learning rate, size of the parameter, and
/// clipping by the root mean square of the update.
template <bool kHolds>
__device__ float step_size(const Tile& tile, const Work<kHolds>& work) {
  const AdafactorStep& step = work.step();
  const AdafactorSums& exchanged = tile.e.a.sums;
  const auto root = [&](double* of_ranks, const float* by_tile) {
    const double squares = squares_of_matrix(tile, work, of_ranks, by_tile);
    return static_cast<float>(sqrt(squares / tile.shape().batch_elements));
  };
  // What no option needs is exchanged all the same, as 0.
  if (work.pipeline.does(kSendSquares)) {
    if (!tile.e.a.scaled_by_param) send(exchanged.param + tile.batch(), 0);
    if (step.clipping_threshold == 0) send(exchanged.update + tile.batch(), 0);
  }
  float size = step.learning_rate;
  if (tile.e.a.scaled_by_param) {
    float param =
        nan_max(static_cast<float>(step.epsilon2), root(exchanged.param, work.sums.param));
    const auto largest = static_cast<float>(step.max_parameter_scale);
    if (largest != 0 && largest < param) param = largest;
    size *= param;
  }
  if (step.clipping_threshold != 0)
    size /= nan_max(1.0f, root(exchanged.update, work.sums.update) /
                              static_cast<float>(step.clipping_threshold));
  return size;
}

/// The end of both forms: momentum, weight decay, the new parameter. update: times the step.
template <bool kVector>
__device__ void store_param(const Entry& e, const AdafactorStep& step, const Unit<kVector>& unit,
                            const Words& momentum, const Words& param, float (&update)[kUnit],
                            ParamSquares& squares, float& bad) {
  if (e.a.momentum != nullptr) {
    float m[kUnit];
    unpack(momentum, e.a.momentum_is_bf16, m);
#pragma unroll
    for (int k = 0; k < kUnit; ++k) {
      update[k] = step.beta1 * m[k] + step.one_minus_beta1 * update[k];
      m[k] = kept(step, update[k], m[k]);
      if (k < unit.count) watch(bad, m[k]);
    }
    if (e.a.momentum_is_bf16)
      store_unit(reinterpret_cast<bf16*>(e.a.momentum), unit, m);
    else
      store_unit(e.a.momentum, unit, m);
  }
  float p[kUnit];
  unpack(param, false, p);
#pragma unroll
  for (int k = 0; k < kUnit; ++k) {
    add_square(squares.before, p[k]);
    p[k] = kept(step, step.keep * p[k] - update[k], p[k]);
    if (k < unit.count) watch(bad, p[k]), add_square(squares.after, p[k]);
  }
  store_unit(e.a.param, unit, p);
  if (e.a.copy != nullptr) store_unit(static_cast<bf16*>(e.a.copy), unit, p);
}

/// For the next update. That of a parameter that another one has written since the update before it left
/// its squares has taken a wrong step.
template <bool kHolds>
__device__ void leave_squares(const Tile& tile, const Work<kHolds>& work,
                              const ParamSquares& squares) {
  float* const left = tile.e.a.scaled_by_param ? param_squares(tile, work) : nullptr;
  if (left == nullptr) return;
  const auto before =
      static_cast<float>(block_sum(static_cast<double>(squares.before), workspace()));
  const auto after = static_cast<float>(block_sum(static_cast<double>(squares.after), workspace()));
  if (threadIdx.x != 0) return;
  const float used = work.sums.param[tile.index];
  if (before != used && (before == before || used == used))  // not both NaN
    simt::raise_fault(work.numbers.fault, FaultCode::kParameter, tile.shape().elements,
                      left - tile.e.a.param_squares, 0);
  *left = after;
}

/// The update of a tile, times the step, from its scaled gradient.
template <bool kVector, bool kFactored, bool kHolds>
__device__ void apply(const Tile& tile, const Work<kHolds>& work, float root_mean, float size) {
  struct Operands {
    Words g, p, m, v;
    float across;
  };
  const Entry& e = tile.e;
  const Gradients<kVector> gradients(e, work, work.slot(tile));
  const Factors factors(tile, work, root_mean);
  float bad = 0;
  ParamSquares squares;
  for_units_of<kVector, Operands, kFullLoads<kHolds>>(
      tile,
      [&](const Unit<kVector>& unit, Operands& from) {
        gradients.load(unit, from.g);
        load_unit(e.a.param, false, unit, from.p);
        if (e.a.momentum != nullptr) load_unit(e.a.momentum, e.a.momentum_is_bf16, unit, from.m);
        if constexpr (kFactored)
          from.across = factors.across(unit);
        else
          load_unit(e.a.v, false, unit, from.v);
      },
      [&](const Unit<kVector>& unit, const Operands& from) {
        if (unit.count == 0) return;
        float g[kUnit], v[kUnit];
        gradients.scaled(unit, from.g, g);
        if constexpr (!kFactored) unpack(from.v, false, v);
#pragma unroll
        for (int k = 0; k < kUnit; ++k)
          if constexpr (kFactored)
            g[k] = size * (g[k] * from.across * factors.along[k]);
          else
            g[k] = size * (g[k] * inverse_root(v[k]));
        store_param(e, work.step(), unit, from.m, from.p, g, squares, bad);
      });
  mark_if(bad, e.a.not_finite);
  leave_squares(tile, work, squares);
}

/// The windows' phases as this block does them.
template <bool kVector, bool kHolds>
struct Run {
  const Table<Entry>& table;
  const Numbers& numbers;
  const Pipeline& pipeline;

  __device__ Work<kHolds> work(const Window& w) const {
    const int64_t floats = int64_t{pipeline.scratch_tiles} * (kAdafactorTileBytes / 4);
    return {numbers, pipeline,
            Sums(pipeline.scratch + w.number % Pipeline::kRing * floats, pipeline.scratch_tiles),
            w.begin, w.held_before};
  }
  __device__ void sums(const Window& w) const {
    if (!pipeline.does(kSums)) return;
    for (uint32_t t = w.begin + w.first(); t < w.end; t += gridDim.x)
      take_sums<kVector>(Tile(table, t, w.begin), work(w));
  }
  __device__ void moments(const Window& w) const {
    if (!pipeline.does(kMoments) && !pipeline.does(kSendMoments)) return;
    for (uint32_t t = w.begin + w.first(); t < w.end; t += gridDim.x)
      take_moments(Tile(table, t, w.begin), work(w));
  }
  /// From the last tile on: of a window that is not held, it is still in the cache.
  __device__ void squares(const Window& w) const {
    const uint32_t first = w.begin + w.first();
    if (!pipeline.does(kSquares) && !pipeline.does(kSendMeans)) return;
    uint32_t matrix = ~0u;
    float root = 0;
    const uint32_t mine = first < w.end ? (w.end - 1 - first) / gridDim.x + 1 : 0;
    for (uint32_t i = mine; i-- > 0;) {
      const Tile tile(table, first + i * gridDim.x, w.begin);
      if (tile.first != matrix) root = root_mean(tile, work(w)), matrix = tile.first;
      if (pipeline.does(kSquares)) take_squares<kVector>(tile, work(w), root);
    }
  }
  /// Calls between() behind the first tile.
  template <typename Between>
  __device__ void apply_all(const Window& w, const Between& between) const {
    const bool runs = pipeline.does(kApply) || pipeline.does(kSendSquares);
    uint32_t matrix = ~0u;
    float size = 0, root = 0;
    uint32_t t = w.begin + w.first();
    for (bool is_first = true; is_first || t < w.end; is_first = false, t += gridDim.x) {
      if (runs && t < w.end) {
        const Tile tile(table, t, w.begin);
        if (tile.first != matrix) {
          matrix = tile.first;
          size = step_size(tile, work(w));
          if (pipeline.does(kApply)) root = root_mean(tile, work(w));
        }
        if (pipeline.does(kApply)) {
          if (tile.shape().factored)
            apply<kVector, true>(tile, work(w), root, size);
          else
            apply<kVector, false>(tile, work(w), root, size);
        }
      }
      if (is_first) between();
    }
  }
};

template <bool kVector>
__global__ void __launch_bounds__(kBlockThreads, 2)
    adafactor_kernel(const __grid_constant__ Table<Entry> table, Numbers numbers,
                     Pipeline pipeline) {
  constexpr int kSumsDone = 0, kOthersDone = 1;  // rounds of squares and of moments take turns
  if (numbers.skips()) return;
  const Run<kVector, true> run{table, numbers, pipeline};
  Window now;
  uint32_t moments = 0;
  for (;;) {
    const Window next = now.next(table, pipeline);
    uint32_t sums = 0, squares = 0;
    if (!now.empty()) {
      simt::grid_wait(kOthersDone, moments);
      run.squares(now);
      squares = simt::grid_arrive(kOthersDone);
    }
    if (!next.empty()) {
      run.sums(next);
      sums = simt::grid_arrive(kSumsDone);
    }
    if (!now.empty()) simt::grid_wait(kOthersDone, squares);
    run.apply_all(now, [&] {
      if (next.empty()) return;
      simt::grid_wait(kSumsDone, sums);
      run.moments(next);
      moments = simt::grid_arrive(kOthersDone);
    });
    if (next.end == pipeline.tiles && next.empty()) return;
    now = next;
  }
}

bool is_vector(const AdafactorGpuArray& a) {
  return a.shape.length % kUnit == 0 && a.shape.elements % kUnit == 0 &&
         are_aligned({a.gradient.pointer, a.param, a.v, a.momentum, a.copy});
}

/// Some stages of sharded arrays: all tiles are one window, and nothing is held.
template <bool kVector>
__global__ void __launch_bounds__(kBlockThreads, 4)
    stages_kernel(const __grid_constant__ Table<Entry> table, Numbers numbers, Pipeline pipeline) {
  if (numbers.skips()) return;
  const Run<kVector, false> run{table, numbers, pipeline};
  const Window all{.end = pipeline.tiles, .number = 0};
  const auto sync_after = [&](Stage stage) {
    if (pipeline.does(stage)) simt::grid_wait(0, simt::grid_arrive(0));
  };
  run.sums(all);
  sync_after(kSums);
  run.moments(all);
  sync_after(kMoments);
  run.squares(all);
  sync_after(kSquares);
  run.apply_all(all, [] {});
}

/// Arrays that are all sharded or not, and all aligned or not.
struct Kind {
  bool sharded, vector;

  auto kernel() const {
    if (sharded) return vector ? stages_kernel<true> : stages_kernel<false>;
    return vector ? adafactor_kernel<true> : adafactor_kernel<false>;
  }
};

/// Launches over arrays of a kind, of all stages or of some.
class Launches {
 public:
  Launches(std::vector<Entry> entries, Kind kind, const Numbers& numbers, Stream stream)
      : entries_(std::move(entries)),
        kind_(kind),
        kernel_(kind.kernel()),
        numbers_(numbers),
        stream_(stream) {
    // Of two blocks a multiprocessor, each with 1 KiB of CUDA's.
    const size_t left = simt::device().shared_limit / 2 - 1024 - kHeldAt;
    const auto fit = static_cast<uint32_t>(left / kSlotBytes);
    slots_ = kind.sharded ? 0 : std::min(fit, kMostSlots);
    blocks_ = static_cast<uint32_t>(simt::resident_blocks(kernel_, how(1)));
    // A tile for each block, also where half of the slots are fewer.
    window_ = std::max(blocks_, blocks_ * slots_ / 2);
    std::vector<AdafactorShape> shapes;
    for (const Entry& e : entries_) shapes.push_back(e.a.shape);
    window_tiles_ = static_cast<uint32_t>(adafactor_window_tiles(shapes, window_));
    scratch_ = std::make_unique<simt::Scratch>(
        adafactor_scratch_bytes(shapes, kind.sharded, window_), stream);
  }
  /// Scratch memory is for the windows in work; of sharded arrays, where a launch is one window, for all
  /// of them, as it stays from stage to stage.
  void run(uint32_t stages) const {
    Pipeline pipeline{.stages = stages,
                      .tiles = 0,
                      .window = kind_.sharded ? ~0u : window_,
                      .scratch_tiles = window_tiles_,
                      .scratch = scratch_->data<float>(),
                      .slots = slots_};
    const auto tiles_of = [](const Entry& e) { return adafactor_tiles(e.a.shape); };
    in_tables<Entry>(entries_, tiles_of, [&](const Table<Entry>& table, int64_t count) {
      pipeline.tiles = static_cast<uint32_t>(count);
      if (kind_.sharded) pipeline.scratch_tiles = pipeline.tiles;
      simt::launch(kernel_, how(std::min(blocks_, pipeline.tiles)), table, numbers_, pipeline);
      if (kind_.sharded) pipeline.scratch += count * (kAdafactorTileBytes / 4);
    });
  }

 private:
  simt::Launch how(uint32_t blocks) const {
    return {.grid = blocks,
            .block = kBlockThreads,
            .shared = kHeldAt + slots_ * kSlotBytes,
            .stream = stream_,
            .cooperative = true};
  }
  std::vector<Entry> entries_;
  Kind kind_;
  void (*kernel_)(Table<Entry>, Numbers, Pipeline);
  Numbers numbers_;
  Stream stream_;
  uint32_t slots_ = 0, blocks_ = 1, window_ = 1, window_tiles_ = 1;
  std::unique_ptr<simt::Scratch> scratch_;
};

}  // namespace
}  // namespace adafactor

void update_adafactor_gpu(std::span<const AdafactorGpuArray> arrays, const AdafactorStep& step,
                          const UpdateControl* control, const ExchangeSums& exchange,
                          Stream stream) {
  using namespace adafactor;
  std::vector<Launches> sharded;
  for (const Kind kind :
       {Kind{false, true}, Kind{false, false}, Kind{true, true}, Kind{true, false}}) {
    std::vector<Entry> entries;
    for (const AdafactorGpuArray& a : arrays) {
      QT_ASSERT(a.shape.elements == 0 ||
                (a.shape.factored ? a.v_row != nullptr && a.v_col != nullptr : a.v != nullptr));
      if (const Entry e{a, 0}; is_sharded(e) == kind.sharded && is_vector(a) == kind.vector)
        entries.push_back(e);
    }
    if (entries.empty()) continue;
    Launches launches(std::move(entries), kind, {step, control, simt::fault_slot()}, stream);
    if (kind.sharded)
      sharded.push_back(std::move(launches));
    else
      launches.run(kAll);
  }
  if (sharded.empty()) return;
  const auto run = [&](uint32_t stages) {
    for (const Launches& launches : sharded) launches.run(stages);
  };
  run(kSums | kSendMoments);
  exchange(AdafactorExchange::moments);
  run(kMoments | kSendMeans);
  exchange(AdafactorExchange::means);
  run(kSquares | kSendSquares);
  exchange(AdafactorExchange::squares);
  run(kApply);
}

}  // namespace quintet::QT_GPU
