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

/// Squares of gradients by column, summed over the warps' lines in order, into the tile's sums.
template <uint32_t kStages>
__device__ void store_column_sums(const Tile& tile, const Work<kStages>& work,
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

template <bool kVector, uint32_t kStages>
__device__ void factored_sums(const Tile& tile, const Work<kStages>& work) {
  const Gradients<kVector> gradients(tile.e, work, kNotHeld);
  const int slot = work.slot(tile);
  const auto hold = slot == kNotHeld ? simt::Shared<float>{} : Gradients<kVector>::place(slot);
  float* const across = work.sums.across + int64_t{tile.index} * kTileLines;
  float columns[kUnit] = {};
  for_units_of<kVector, Words, kLoads>(
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
template <bool kVector, uint32_t kStages>
__device__ void full_moments(const Tile& tile, const Work<kStages>& work) {
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
  for_units_of<kVector, Operands, kFullLoads>(
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
  if (threadIdx.x == 0)
    work.sums.update[tile.index] = static_cast<double>(static_cast<float>(update));
}

template <bool kVector, uint32_t kStages>
__device__ void take_sums(const Tile& tile, const Work<kStages>& work) {
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

/// The state's moment from the sum of squares that it averages. Returns the new moment.
__device__ float store_moment(const Entry& e, const AdafactorStep& step, double sum, double count,
                              float* state) {
  const auto mean = static_cast<float>(sum / count + step.epsilon1);
  const float next = step.decay * *state + step.mixing * mean;
  *state = kept(step, next, *state);
  float bad = 0;
  watch(bad, *state);
  mark_if(bad, e.a.not_finite);
  return next;
}

/// What is done with the sums over a matrix's tiles of the squares along its lines, or across them.
enum class Goal { moments, weighted };

/// The moments along the lines of a tile's columns, or across those of its members: `elements` of them
/// from `first` on in v_along or v_across, of which this thread has one, threadIdx.x modulo kMost.
/// partial(part): the part-th of `parts` numbers that make its sum. Factors go to `factors`.
template <uint32_t kMost, uint32_t kStages, typename Partial>
__device__ void make_moments(const Tile& tile, const Work<kStages>& work, Goal goal, bool is_row,
                             uint32_t elements, int64_t place, uint32_t parts, double count,
                             float* factors, const Partial& partial) {
  const Entry& e = tile.e;
  const AdafactorSums sums = work.of_ranks(tile);
  double* const exchanged = is_row ? sums.rows : sums.columns;
  const bool sends = work.does(kSendMoments);
  if (sums.param != nullptr && exchanged == nullptr && !sends) return;  // made before the exchange
  const bool known = exchanged != nullptr && !sends;
  const bool wanted = goal == Goal::moments || work.step().clipping_threshold != 0;
  const uint32_t i = threadIdx.x % kMost;
  double sum = 0;
  if (i < elements && !known && wanted)
#pragma unroll 4
    for (uint32_t part = threadIdx.x / kMost; part < parts; part += kBlockThreads / kMost)
      sum += static_cast<double>(partial(part));
  sum = sum_of_element(sum, kMost);
  double* const to = goal == Goal::weighted ? sums.weighted : exchanged;
  if (to != nullptr && sends) {
    if (threadIdx.x < elements) to[place] = sum;
    return;
  }
  double of_rows = 0, of_update = 0;
  if (threadIdx.x < elements) {
    const float next = store_moment(e, work.step(), known ? exchanged[place] : sum, count,
                                    (is_row ? e.a.v_row : e.a.v_col) + place);
    const float factor = inverse_root(next);
    factors[i] = factor;
    of_rows = static_cast<double>(next);
    if (known && sums.weighted != nullptr)
      of_update =
          sums.weighted[place] * (static_cast<double>(factor) * static_cast<double>(factor));
  }
  if (is_row) of_rows = block_sum(of_rows, workspace());
  if (known && sums.weighted != nullptr) of_update = block_sum(of_update, workspace());
  if (threadIdx.x != 0) return;
  if (is_row) work.sums.rows[tile.index] = of_rows;
  if (known && sums.weighted != nullptr) work.sums.update[tile.index] = of_update;
}

/// v_along: sums over tiles of members.
template <uint32_t kStages>
__device__ void along_moments(const Tile& tile, const Work<kStages>& work, Goal goal) {
  const AdafactorShape& s = tile.shape();
  const uint32_t left = s.length - tile.first_column();
  const float* const from =
      work.sums.along + int64_t{tile.index} * kTileColumns + threadIdx.x % kTileColumns;
  make_moments<kTileColumns>(
      tile, work, goal, s.along_is_row, left < kTileColumns ? left : kTileColumns,
      int64_t{tile.steps.group} * s.length + tile.first_column() + threadIdx.x % kTileColumns,
      tile.rows, s.along_count, work.sums.along + int64_t{tile.index} * kTileColumns,
      [&](uint32_t row) { return from[int64_t{row} * tile.columns * kTileColumns]; });
}

/// v_across: sums over tiles of columns, and over the groups of a matrix.
template <uint32_t kStages>
__device__ void across_moments(const Tile& tile, const Work<kStages>& work, Goal goal) {
  const AdafactorShape& s = tile.shape();
  const uint32_t left = s.members - tile.first_member(), i = threadIdx.x % kTileLines;
  const float* const from = work.sums.across + int64_t{tile.index} * kTileLines + i;
  make_moments<kTileLines>(
      tile, work, goal, !s.along_is_row, left < kTileLines ? left : kTileLines,
      int64_t{tile.steps.across} +
          steps_of(s, AdafactorShape::kAcross, tile.first_member() + i).across,
      s.groups / s.batches * tile.columns, s.across_count,
      work.sums.across + int64_t{tile.index} * kTileLines, [&](uint32_t part) {
        const uint32_t group = part / tile.columns, column = part % tile.columns;
        return from[(int64_t{group} * tile.rows * tile.columns + column) * kTileLines];
      });
}

template <uint32_t kStages>
__device__ void take_moments(const Tile& tile, const Work<kStages>& work) {
  if (!tile.shape().factored) return;
  if (tile.row == 0) along_moments(tile, work, Goal::moments);
  if (tile.group == 0 && tile.column == 0) across_moments(tile, work, Goal::moments);
}

/// For the other ranks, of an array that is sharded along rows or columns.
template <uint32_t kStages>
__device__ void send_weighted(const Tile& tile, const Work<kStages>& work) {
  if (work.of_ranks(tile).weighted == nullptr) return;
  if (exchanged_moment(tile.e, /*along=*/true) != nullptr) {
    if (tile.row == 0) along_moments(tile, work, Goal::weighted);
  } else if (tile.group == 0 && tile.column == 0) {
    across_moments(tile, work, Goal::weighted);
  }
}

/// Sum over the tiles of a matrix.
template <typename T>
__device__ double sum_of_tiles(const Tile& tile, const T* squares) {
  const auto count = static_cast<uint32_t>(adafactor_matrix_tiles(tile.shape()));
  double sum = 0;
#pragma unroll 4
  for (uint32_t t = threadIdx.x; t < count; t += kBlockThreads)
    sum += static_cast<double>(squares[tile.first + t]);
  return block_sum(sum, workspace());
}
/// Over the tiles of a matrix that made its moments along lines, or across them.
__device__ double sum_of_moments(const Tile& tile, bool along, const double* by_tile) {
  const AdafactorShape& s = tile.shape();
  const uint32_t step = along ? tile.columns : 1, every = tile.rows * tile.columns;
  const uint32_t count = along ? s.groups / s.batches * tile.columns : tile.rows;
  double sum = 0;
#pragma unroll 1
  for (uint32_t j = threadIdx.x; j < count; j += kBlockThreads)
    sum += by_tile[tile.first + (along ? j / step * every + j % step : j * tile.columns)];
  return block_sum(sum, workspace());
}

/// What the update of a factored matrix is multiplied by for all rows: v_row is divided by its mean
/// before its root is taken.
template <uint32_t kStages>
__device__ float root_mean(const Tile& tile, const Work<kStages>& work) {
  const AdafactorShape& s = tile.shape();
  if (!s.factored) return 1;
  const bool sends = work.does(kSendMeans);
  double* const means = work.of_ranks(tile).means;
  if (sends && means == nullptr) return 1;  // not used, as v_row is not known yet
  const double sum = sends || means == nullptr
                         ? sum_of_moments(tile, s.along_is_row, work.sums.rows)
                         : means[tile.batch()];
  // All blocks with a tile of the matrix have the same sum.
  if (sends && threadIdx.x == 0) means[tile.batch()] = sum;
  return sqrtf(static_cast<float>(sum / s.rows()));
}

/// Factors of a factored update in one tile: gradient * along * across.
struct Factors {
  float along[kUnit];
  const float* across_of;
  float mean;

  template <uint32_t kStages>
  __device__ Factors(const Tile& tile, const Work<kStages>& work, float root_mean)
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
template <uint32_t kStages>
__device__ float* param_squares(const Tile& tile, const Work<kStages>& work) {
  const Entry& e = tile.e;
  if (e.a.param_squares == nullptr) return nullptr;
  return e.a.param_squares + (work.begin + tile.index - static_cast<uint32_t>(e.first_chunk));
}

/// Squares of a tile's gradients times the factors that are known before sums are exchanged, along the other
/// moment.
template <bool kVector, uint32_t kStages>
__device__ void take_weighted(const Tile& tile, const Work<kStages>& work) {
  struct Operands {
    Words g;
    float across;
  };
  const bool by_column = exchanged_moment(tile.e, /*along=*/true) != nullptr;
  const Gradients<kVector> gradients(tile.e, work, work.slot(tile));
  const Factors factors(tile, work, 1);
  float* const across = work.sums.across + int64_t{tile.index} * kTileLines;
  float columns[kUnit] = {};
  for_units_of<kVector, Operands, kLoads>(
      tile,
      [&](const Unit<kVector>& unit, Operands& from) {
        gradients.load(unit, from.g);
        if (by_column) from.across = factors.across(unit);
      },
      [&](const Unit<kVector>& unit, const Operands& from) {
        float g[kUnit], of_line = 0;
        gradients.scaled(unit, from.g, g);
#pragma unroll
        for (int k = 0; k < kUnit; ++k) {
          const float factor = by_column ? from.across : factors.along[k];
          // Beyond the array's end factors may be infinite.
          const float u = k < unit.count ? g[k] * factor : 0.0f;
          columns[k] += u * u;
          of_line += u * u;
        }
        if (by_column) return;
        of_line = warp_sum(of_line);
        if (threadIdx.x % 32 == 0) across[unit.line] = of_line;
      });
  if (by_column) store_column_sums(tile, work, columns);
}

/// Squares of the unclipped update of a factored array, if they are to be known from it, and of the parameter.
template <bool kVector, uint32_t kStages>
__device__ void take_squares(const Tile& tile, const Work<kStages>& work, float root_mean) {
  struct Operands {
    Words g, p;
    float across;
  };
  const Entry& e = tile.e;
  // Before the only exchange nobody knows both moments.
  const bool of_update =
      kStages != kBeforeExchange && e.a.shape.factored && work.step().clipping_threshold != 0;
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
  for_units_of<kVector, Operands, kLoads>(
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
  if (of_update) work.sums.update[tile.index] = static_cast<double>(static_cast<float>(updates));
  if (of_param) work.sums.param[tile.index] = static_cast<float>(params);
}

/// The squares of a matrix for the other ranks. What no option needs is exchanged all the same, as 0.
template <uint32_t kStages>
__device__ void send_squares(const Tile& tile, const Work<kStages>& work) {
  const auto send = [&](double* to, bool wanted, const auto* by_tile) {
    const double sum = wanted ? sum_of_tiles(tile, by_tile) : 0;
    // All blocks with a tile of the matrix have the same sum.
    if (threadIdx.x == 0) to[tile.batch()] = sum;
  };
  const AdafactorSums to = work.of_ranks(tile);
  send(to.param, tile.e.a.scaled_by_param, work.sums.param);
  if (to.weighted == nullptr)
    send(to.update, work.step().clipping_threshold != 0, work.sums.update);
}

/// Squares of a matrix's unclipped update, of all ranks.
template <uint32_t kStages>
__device__ double update_squares(const Tile& tile, const Work<kStages>& work, float root_mean) {
  const AdafactorSums exchanged = work.of_ranks(tile);
  if (exchanged.weighted != nullptr)
    return sum_of_moments(tile, exchanged_moment(tile.e, true) != nullptr, work.sums.update) *
           (static_cast<double>(root_mean) * static_cast<double>(root_mean));
  return exchanged.update != nullptr ? exchanged.update[tile.batch()]
                                     : sum_of_tiles(tile, work.sums.update);
}

/// What a matrix's unclipped update is multiplied by, from learning rate, size of the parameter, and
/// clipping by the root mean square of the update.
template <uint32_t kStages>
__device__ float step_size(const Tile& tile, const Work<kStages>& work, float root_mean) {
  const AdafactorStep& step = work.step();
  const auto root = [&](double squares) {
    return static_cast<float>(sqrt(squares / tile.shape().batch_elements));
  };
  float size = step.learning_rate;
  if (tile.e.a.scaled_by_param) {
    const double* const exchanged = work.of_ranks(tile).param;
    const double squares =
        exchanged != nullptr ? exchanged[tile.batch()] : sum_of_tiles(tile, work.sums.param);
    float param = nan_max(static_cast<float>(step.epsilon2), root(squares));
    const auto largest = static_cast<float>(step.max_parameter_scale);
    if (largest != 0 && largest < param) param = largest;
    size *= param;
  }
  if (step.clipping_threshold != 0)
    size /= nan_max(1.0f, root(update_squares(tile, work, root_mean)) /
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
template <uint32_t kStages>
__device__ void leave_squares(const Tile& tile, const Work<kStages>& work,
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
template <bool kVector, bool kFactored, uint32_t kStages>
__device__ void apply(const Tile& tile, const Work<kStages>& work, float root_mean, float size) {
  struct Operands {
    Words g, p, m, v;
    float across;
  };
  const Entry& e = tile.e;
  const Gradients<kVector> gradients(e, work, work.slot(tile));
  const Factors factors(tile, work, root_mean);
  float bad = 0;
  ParamSquares squares;
  for_units_of<kVector, Operands, kFullLoads>(
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
template <bool kVector, uint32_t kStages>
struct Run {
  const Table<Entry>& table;
  const Numbers& numbers;
  const Pipeline& pipeline;

  __device__ bool does(Stage stage) const { return pipeline.template does<kStages>(stage); }
  __device__ Work<kStages> work(const Window& w) const {
    const int64_t floats = int64_t{pipeline.scratch_tiles} * (kAdafactorTileBytes / 4);
    constexpr bool stays = kStages != kAll;  // for other launches
    return {numbers, pipeline,
            Sums(pipeline.scratch + (stays ? 0 : w.number % Pipeline::kRing * floats),
                 pipeline.scratch_tiles, stays ? w.begin : 0),
            w.begin, w.held_before};
  }
  __device__ void sums(const Window& w) const {
    if (!does(kSums)) return;
    for (uint32_t t = w.begin + w.first(); t < w.end; t += gridDim.x)
      take_sums<kVector>(Tile(table, t, w.begin), work(w));
  }
  __device__ void moments(const Window& w) const {
    if (!does(kMoments) && !does(kSendMoments)) return;
    for (uint32_t t = w.begin + w.first(); t < w.end; t += gridDim.x)
      take_moments(Tile(table, t, w.begin), work(w));
  }
  /// From the last tile on: of a window that is not held, it is still in the cache.
  __device__ void squares(const Window& w) const {
    const uint32_t first = w.begin + w.first();
    if (!does(kSquares) && !does(kSendMeans)) return;
    uint32_t matrix = ~0u;
    float root = 0;
    const uint32_t mine = first < w.end ? (w.end - 1 - first) / gridDim.x + 1 : 0;
    for (uint32_t i = mine; i-- > 0;) {
      const Tile tile(table, first + i * gridDim.x, w.begin);
      if (tile.first != matrix) root = root_mean(tile, work(w)), matrix = tile.first;
      if (!does(kSquares)) continue;
      take_squares<kVector>(tile, work(w), root);
      if constexpr (kStages == kBeforeExchange)
        if (tile.e.a.sums.weighted != nullptr && numbers.step.clipping_threshold != 0)
          take_weighted<kVector>(tile, work(w));
    }
  }
  /// Calls between() behind the first tile.
  template <typename Between>
  __device__ void apply_all(const Window& w, const Between& between) const {
    const bool applies = does(kApply), sends = does(kSendSquares);
    uint32_t matrix = ~0u;
    float size = 0, root = 0;
    uint32_t t = w.begin + w.first();
    for (bool is_first = true; is_first || t < w.end; is_first = false, t += gridDim.x) {
      if ((applies || sends) && t < w.end) {
        const Tile tile(table, t, w.begin);
        if (tile.first != matrix) {
          matrix = tile.first;
          if (applies)
            root = root_mean(tile, work(w)), size = step_size(tile, work(w), root);
          else
            send_squares(tile, work(w));
        }
        if constexpr (kStages == kBeforeExchange) send_weighted(tile, work(w));
        if (applies && tile.shape().factored)
          apply<kVector, true>(tile, work(w), root, size);
        else if (applies)
          apply<kVector, false>(tile, work(w), root, size);
      }
      if (is_first) between();
    }
  }
};

/// kStages: those of the launch, or 0: what stands before the update of arrays that are sharded both ways. One kernel
/// of all would need more registers than there are.
template <bool kVector, uint32_t kStages>
__global__ void __launch_bounds__(kBlockThreads, 2)
    adafactor_kernel(const __grid_constant__ Table<Entry> table, Numbers numbers,
                     Pipeline pipeline) {
  constexpr int kSumsDone = 0, kOthersDone = 1;  // rounds of squares and of moments take turns
  if (numbers.skips()) return;
  const Run<kVector, kStages> run{table, numbers, pipeline};
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

enum class Sharding { none, one_way, both_ways };
Sharding sharding_of(const Entry& e) {
  return !is_sharded(e)            ? Sharding::none
         : is_sharded_both_ways(e) ? Sharding::both_ways
                                   : Sharding::one_way;
}

/// Launches over arrays that are all sharded alike, and all aligned (`vector`) or not.
class Launches {
 public:
  Launches(std::vector<Entry> entries, bool sharded, bool vector, const Numbers& numbers,
           Stream stream)
      : entries_(std::move(entries)),
        sharded_(sharded),
        vector_(vector),
        numbers_(numbers),
        stream_(stream) {
    // Of two blocks a multiprocessor, each with 1 KiB of CUDA's.
    const size_t left = simt::device().shared_limit / 2 - 1024 - kHeldAt;
    slots_ = std::min(static_cast<uint32_t>(left / kSlotBytes), kMostSlots);
    std::vector<AdafactorShape> shapes;
    for (const Entry& e : entries_) shapes.push_back(e.a.shape);
    const uint32_t window = window_of(kAll, blocks_of(kAll));
    window_tiles_ = static_cast<uint32_t>(adafactor_window_tiles(shapes, window));
    scratch_ =
        std::make_unique<simt::Scratch>(adafactor_scratch_bytes(shapes, sharded, window), stream);
  }
  /// Scratch memory is for the windows in work; of sharded arrays for all of them, as it stays from stage to
  /// stage. Launches that do not read gradients several times are one window and hold none.
  void run(uint32_t stages) const {
    const uint32_t blocks = blocks_of(stages);
    Pipeline pipeline{.stages = stages,
                      .tiles = 0,
                      .window = window_of(stages, blocks),
                      .scratch_tiles = window_tiles_,
                      .scratch = scratch_->data<float>(),
                      .slots = slots_of(stages)};
    const auto tiles_of = [](const Entry& e) { return adafactor_tiles(e.a.shape); };
    in_tables<Entry>(entries_, tiles_of, [&](const Table<Entry>& table, int64_t count) {
      pipeline.tiles = static_cast<uint32_t>(count);
      if (sharded_) pipeline.scratch_tiles = pipeline.tiles;
      simt::launch(kernel_of(stages), how(stages, std::min(blocks, pipeline.tiles)), table,
                   numbers_, pipeline);
      if (sharded_) pipeline.scratch += count * (kAdafactorTileBytes / 4);
    });
  }

 private:
  using Kernel = void (*)(Table<Entry>, Numbers, Pipeline);
  template <uint32_t kStages>
  Kernel kernel_of() const {
    return vector_ ? adafactor_kernel<true, kStages> : adafactor_kernel<false, kStages>;
  }
  Kernel kernel_of(uint32_t stages) const {
    return stages == kAll              ? kernel_of<kAll>()
           : stages == kBeforeExchange ? kernel_of<kBeforeExchange>()
           : stages == kAfterExchange  ? kernel_of<kAfterExchange>()
           : stages == kApply          ? kernel_of<kApply>()
                                       : kernel_of<0>();
  }
  uint32_t slots_of(uint32_t stages) const {
    return stages == kAll || stages == kBeforeExchange ? slots_ : 0;
  }
  simt::Launch how(uint32_t stages, uint32_t blocks) const {
    return {.grid = blocks,
            .block = kBlockThreads,
            .shared = kHeldAt + slots_of(stages) * kSlotBytes,
            .stream = stream_,
            .cooperative = true};
  }
  uint32_t blocks_of(uint32_t stages) const {
    return static_cast<uint32_t>(simt::resident_blocks(kernel_of(stages), how(stages, 1)));
  }
  uint32_t window_of(uint32_t stages, uint32_t blocks) const {
    const uint32_t slots = blocks * slots_of(stages);
    // A tile for each block, also where half of the slots are fewer.
    return slots == 0 ? ~0u : stages == kAll ? std::max(blocks, slots / 2) : slots;
  }
  std::vector<Entry> entries_;
  bool sharded_, vector_;
  Numbers numbers_;
  Stream stream_;
  uint32_t slots_ = 0, window_tiles_ = 1;
  std::unique_ptr<simt::Scratch> scratch_;
};

}  // namespace
}  // namespace adafactor

void update_adafactor_gpu(std::span<const AdafactorGpuArray> arrays, const AdafactorStep& step,
                          const UpdateControl* control, const ExchangeSums& exchange,
                          Stream stream) {
  using namespace adafactor;
  const auto launches_of = [&](Sharding sharding) {
    std::vector<Launches> all;
    for (const bool vector : {true, false}) {
      std::vector<Entry> entries;
      for (const AdafactorGpuArray& a : arrays)
        if (const Entry e{a, 0}; sharding_of(e) == sharding && is_vector(a) == vector)
          entries.push_back(e);
      if (!entries.empty())
        all.emplace_back(std::move(entries), sharding != Sharding::none, vector,
                         Numbers{step, control, simt::fault_slot()}, stream);
    }
    return all;
  };
  const auto run = [](const std::vector<Launches>& all, uint32_t stages) {
    for (const Launches& launches : all) launches.run(stages);
  };
  for (const AdafactorGpuArray& a : arrays)
    QT_ASSERT(a.shape.elements == 0 ||
              (a.shape.factored ? a.v_row != nullptr && a.v_col != nullptr : a.v != nullptr));
  run(launches_of(Sharding::none), kAll);
  const std::vector<Launches> one_way = launches_of(Sharding::one_way),
                              both_ways = launches_of(Sharding::both_ways);
  if (one_way.empty() && both_ways.empty()) return;
  run(both_ways, kSums | kSendMoments);
  run(one_way, kBeforeExchange);
  exchange(AdafactorExchange::moments);
  run(both_ways, kMoments | kSendMeans);
  exchange(AdafactorExchange::means);
  run(both_ways, kSquares | kSendSquares);
  exchange(AdafactorExchange::squares);
  run(one_way, kAfterExchange);
  run(both_ways, kApply);
}

}  // namespace quintet::QT_GPU
