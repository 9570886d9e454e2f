#include <algorithm>
#include <vector>

#include "kernels/optimizers/adafactor.cuh"
#include "kernels/optimizers/watch.cuh"
#include "kernels/simt/host/scratch.h"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {
namespace adafactor {
namespace {

/// 1 / sqrt(x), rounded correctly twice.
__device__ float inverse_root(float x) { return 1.0f / sqrtf(x); }

using Workspace = simt::Shared<double>;
/// Shared memory: 32 doubles for sums, then a row of columns for each warp.
__device__ Workspace workspace() { return simt::shared<double>(0, 32); }
constexpr size_t kShared = 256 + kWarps * kTileColumns * sizeof(float);

/// Squares of gradients by column, summed over the warps' lines in order, into the tile's row.
__device__ void store_column_sums(const Entry& e, const Tile& tile,
                                  const float (&sums)[kHalves][kUnit]) {
  auto rows = simt::shared<float>(256, kWarps * kTileColumns);
  const uint32_t warp = threadIdx.x / 32;
#pragma unroll
  for (int half = 0; half < kHalves; ++half)
#pragma unroll
    for (int k = 0; k < kUnit; ++k)
      rows[warp * kTileColumns + unit_column(tile, half) - tile.column + k] = sums[half][k];
  __syncthreads();
  const uint32_t column = tile.column + threadIdx.x;  // as many threads as columns
  static_assert(kTileColumns == kBlockThreads);
  if (column >= e.a.shape.length) return;
  float total = 0;
  for (int w = 0; w < kWarps; ++w) total += rows[w * kTileColumns + threadIdx.x];
  const int64_t row = tile.group * member_tiles(e.a.shape) + tile.member / kTileLines;
  e.along_sums[row * e.a.shape.length + column] = total;
}

__device__ void factored_sums(const Entry& e, const Tile& tile, const Numbers& numbers) {
  const float scale = numbers.gradient_scale();
  float columns[kHalves][kUnit] = {}, of_param = 0;
  for_lines(e.a.shape, tile, [&](const Line& line) {
    float of_line = 0;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const uint32_t column = unit_column(tile, half);
      const int count = line.count(column);
      float g[kUnit], p[kUnit];
      load_gradient(e.a.gradient, line.begin + column, count, e.vector != 0, g);
      load_some<true>(e.a.param + line.begin + column, count, e.vector != 0, p);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        const float square = (g[k] * scale) * (g[k] * scale);
        columns[half][k] += square;
        of_line += square;
        of_param += p[k] * p[k];
      }
    }
    of_line = warp_sum(of_line);
    if (threadIdx.x % 32 == 0)
      e.across_sums[(tile.column / kTileColumns * e.a.shape.groups + tile.group) *
                        int64_t{e.a.shape.members} +
                    line.member] = of_line;
  });
  store_column_sums(e, tile, columns);
  const double total = block_sum(static_cast<double>(of_param), workspace());
  if (threadIdx.x == 0) e.param_squares[tile.number] = static_cast<float>(total);
}

/// New moments of an unfactored array, and the squares of its unclipped update.
__device__ void full_moments(const Entry& e, const Tile& tile, const Numbers& numbers) {
  const float scale = numbers.gradient_scale();
  const AdafactorStep& step = numbers.step;
  const auto epsilon = static_cast<float>(step.epsilon1);
  float of_update = 0, of_param = 0, bad = 0;
  for_lines(e.a.shape, tile, [&](const Line& line) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const uint32_t column = unit_column(tile, half);
      const int count = line.count(column);
      if (count == 0) continue;
      const int64_t i = line.begin + column;
      float g[kUnit], p[kUnit], v[kUnit];
      load_gradient(e.a.gradient, i, count, e.vector != 0, g);
      load_some(e.a.param + i, count, e.vector != 0, p);
      load_some(e.a.v + i, count, e.vector != 0, v);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        g[k] *= scale;
        const float next = step.decay * v[k] + step.mixing * (g[k] * g[k] + epsilon);
        const float update = k < count ? g[k] * inverse_root(next) : 0.0f;
        v[k] = kept(step, next, v[k]);
        if (k < count) watch(bad, v[k]);
        of_update += update * update;
        of_param += p[k] * p[k];
      }
      store_some(e.a.v + i, count, e.vector != 0, v);
    }
  });
  mark_if(bad, e.a.not_finite);
  const double update = block_sum(static_cast<double>(of_update), workspace());
  const double param = block_sum(static_cast<double>(of_param), workspace());
  if (threadIdx.x != 0) return;
  e.update_squares[tile.number] = static_cast<float>(update);
  e.param_squares[tile.number] = static_cast<float>(param);
}

__global__ void __launch_bounds__(kBlockThreads)
    sums_kernel(const __grid_constant__ Table<Entry> table, Numbers numbers) {
  if (numbers.skips()) return;
  const Entry& e = entry_of(table, blockIdx.x);
  const Tile tile(e.a.shape, blockIdx.x - e.first_chunk);
  if (e.a.shape.factored)
    factored_sums(e, tile, numbers);
  else
    full_moments(e, tile, numbers);
}

// A block of the moments kernel: 32 elements, 8 threads each.
constexpr int kMomentElements = 32, kMomentThreads = 8;

int64_t moment_chunks(const AdafactorShape& s) {
  if (!s.factored || s.elements == 0) return 0;
  return ceil_div(s.along_elements(), kMomentElements) +
         ceil_div(s.across_elements(), kMomentElements);
}

/// Sum over the threads of an element, on its first one: `sum` of each in order.
__device__ double moment_sum(double sum) {
  auto sums = simt::shared<double>(0, kBlockThreads);
  sums[threadIdx.x] = sum;
  __syncthreads();
  double total = 0;
  if (threadIdx.x < kMomentElements)
    for (int part = 0; part < kMomentThreads; ++part)
      total += sums[part * kMomentElements + threadIdx.x];
  return total;
}

/// An element's new moment from the sum of squares that it averages: the state, the factor of the
/// update and, for v_row (is_row), what its mean is made of.
__device__ void store_moment(const Entry& e, const AdafactorStep& step, double sum, double count,
                             bool is_row, float* factors, int64_t i) {
  float* state = (is_row ? e.a.v_row : e.a.v_col) + i;
  const auto mean = static_cast<float>(sum / count + step.epsilon1);
  const float next = step.decay * *state + step.mixing * mean;
  *state = kept(step, next, *state);
  float bad = 0;
  watch(bad, *state);
  mark_if(bad, e.a.not_finite);
  factors[i] = inverse_root(next);
  if (is_row) e.rows[i] = next;
}

/// Whether the array's sums over ranks are there, and this block has none to take.
__device__ bool is_exchanged(Phase phase, const Entry& e) {
  return phase == Phase::use && is_sharded(e);
}

/// Leaves the sum for the other ranks, or makes the moment of it, or of what they have made of it.
__device__ void finish_moment(const Entry& e, const AdafactorStep& step, Phase phase, double sum,
                              double count, bool is_row, float* factors, int64_t i) {
  double* exchanged = is_row ? e.a.sums.rows : e.a.sums.columns;
  if (phase == Phase::sum)
    exchanged[i] = sum;
  else
    store_moment(e, step, is_exchanged(phase, e) ? exchanged[i] : sum, count, is_row, factors, i);
}

/// v_along: sums over tiles of members.
__device__ void along_moments(const Entry& e, const AdafactorStep& step, Phase phase,
                              int64_t chunk) {
  const AdafactorShape& s = e.a.shape;
  const int64_t i = chunk * kMomentElements + threadIdx.x % kMomentElements;
  const int64_t parts = member_tiles(s), group = i / s.length;
  double sum = 0;
  if (i < s.along_elements() && !is_exchanged(phase, e))
#pragma unroll 4
    for (int64_t part = threadIdx.x / kMomentElements; part < parts; part += kMomentThreads)
      sum += static_cast<double>(
          __ldg(e.along_sums + (group * parts + part) * s.length + i % s.length));
  sum = moment_sum(sum);
  if (threadIdx.x < kMomentElements && i < s.along_elements())
    finish_moment(e, step, phase, sum, s.along_count, s.along_is_row, e.along, i);
}

/// v_across: sums over tiles of columns, and over the groups of a batch.
__device__ void across_moments(const Entry& e, const AdafactorStep& step, Phase phase,
                               int64_t chunk) {
  const AdafactorShape& s = e.a.shape;
  const int64_t k = chunk * kMomentElements + threadIdx.x % kMomentElements;
  const auto batch = static_cast<uint32_t>(k / s.members);
  const auto member = static_cast<uint32_t>(k % s.members);
  const Steps of_batch = steps_of(s, AdafactorShape::kBatch, batch);
  const int64_t columns = column_tiles(s), parts = s.groups / s.batches * columns;
  double sum = 0;
  if (k < s.across_elements() && !is_exchanged(phase, e))
    for (int64_t part = threadIdx.x / kMomentElements; part < parts; part += kMomentThreads) {
      const auto same = static_cast<uint32_t>(part / columns);
      const int64_t group = of_batch.group + steps_of(s, AdafactorShape::kSame, same).group;
      sum += static_cast<double>(
          __ldg(e.across_sums + (part % columns * s.groups + group) * s.members + member));
    }
  sum = moment_sum(sum);
  if (threadIdx.x < kMomentElements && k < s.across_elements())
    finish_moment(e, step, phase, sum, s.across_count, !s.along_is_row, e.across,
                  of_batch.across + steps_of(s, AdafactorShape::kAcross, member).across);
}

__global__ void __launch_bounds__(kBlockThreads)
    moments_kernel(const __grid_constant__ Table<Entry> table, Numbers numbers, Phase phase) {
  if (numbers.skips()) return;
  const Entry& e = entry_of(table, blockIdx.x);
  const int64_t along_chunks = ceil_div(e.a.shape.along_elements(), kMomentElements);
  const int64_t chunk = blockIdx.x - e.first_chunk;
  if (chunk < along_chunks)
    along_moments(e, numbers.step, phase, chunk);
  else
    across_moments(e, numbers.step, phase, chunk - along_chunks);
}

/// A block a batch: the root of the mean over the batch's rows of the new v_row.
__global__ void __launch_bounds__(kBlockThreads)
    means_kernel(const __grid_constant__ Table<Entry> table, Numbers numbers, Phase phase) {
  if (numbers.skips()) return;
  const Entry& e = entry_of(table, blockIdx.x);
  const AdafactorShape& s = e.a.shape;
  const auto batch = static_cast<uint32_t>(blockIdx.x - e.first_chunk);
  const Steps of_batch = steps_of(s, AdafactorShape::kBatch, batch);
  double sum = 0;
  if (is_exchanged(phase, e)) {
    if (threadIdx.x == 0) sum = e.a.sums.means[batch];
  } else if (s.along_is_row) {
    const int64_t count = int64_t{s.groups / s.batches} * s.length;
    for (int64_t j = threadIdx.x; j < count; j += kBlockThreads) {
      const auto same = static_cast<uint32_t>(j / s.length);
      const int64_t group = of_batch.group + steps_of(s, AdafactorShape::kSame, same).group;
      sum += static_cast<double>(e.rows[group * s.length + j % s.length]);
    }
  } else {
    for (uint32_t m = threadIdx.x; m < s.members; m += kBlockThreads)
      sum += static_cast<double>(
          e.rows[of_batch.across + steps_of(s, AdafactorShape::kAcross, m).across]);
  }
  sum = block_sum(sum, workspace());
  if (threadIdx.x != 0) return;
  if (phase == Phase::sum)
    e.a.sums.means[batch] = sum;
  else
    e.root_means[batch] = sqrtf(static_cast<float>(sum / s.rows()));
}

/// Sum over the tiles of a batch, on all threads.
__device__ double sum_of_tiles(const Entry& e, uint32_t batch, const float* squares) {
  const AdafactorShape& s = e.a.shape;
  const Steps of_batch = steps_of(s, AdafactorShape::kBatch, batch);
  const int64_t each = member_tiles(s) * column_tiles(s);  // of a group
  const int64_t count = int64_t{s.groups / s.batches} * each;
  double sum = 0;
  for (int64_t j = threadIdx.x; j < count; j += kBlockThreads) {
    const auto same = static_cast<uint32_t>(j / each);
    const int64_t group = of_batch.group + steps_of(s, AdafactorShape::kSame, same).group;
    sum += static_cast<double>(squares[group * each + j % each]);
  }
  return block_sum(sum, workspace());
}

/// Factors of a factored update in one tile: gradient * along * across.
struct Factors {
  float along[kHalves][kUnit];
  float root_mean;  // of rows: what v_row is divided by before its root is taken

  __device__ Factors(const Entry& e, const Tile& tile) {
    const AdafactorShape& s = e.a.shape;
    root_mean = e.root_means[tile.steps.batch];
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        const uint32_t column = unit_column(tile, half) + static_cast<uint32_t>(k);
        along[half][k] =
            column < s.length ? e.along[int64_t{tile.group} * s.length + column] : 0.0f;
      }
  }
  __device__ float across(const Entry& e, const Line& line) const {
    return __ldg(e.across + line.across) * root_mean;
  }
};

__global__ void __launch_bounds__(kBlockThreads, 4)
    squares_kernel(const __grid_constant__ Table<Entry> table, Numbers numbers) {
  if (numbers.skips()) return;
  const Entry& e = entry_of(table, blockIdx.x);
  const Tile tile(e.a.shape, blockIdx.x - e.first_chunk);
  const Factors factors(e, tile);
  const float scale = numbers.gradient_scale();
  float sum = 0;
  for_lines(e.a.shape, tile, [&](const Line& line) {
    const float across = factors.across(e, line);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const uint32_t column = unit_column(tile, half);
      const int count = line.count(column);
      float g[kUnit];
      load_gradient(e.a.gradient, line.begin + column, count, e.vector != 0, g);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        // Beyond the array's end factors may be infinite.
        const float update = k < count ? g[k] * scale * across * factors.along[half][k] : 0.0f;
        sum += update * update;
      }
    }
  });
  const double total = block_sum(static_cast<double>(sum), workspace());
  if (threadIdx.x == 0) e.update_squares[tile.number] = static_cast<float>(total);
}

/// A block a batch: the squares of a sharded array's block, for the other ranks.
__global__ void __launch_bounds__(kBlockThreads)
    batch_squares_kernel(const __grid_constant__ Table<Entry> table, Numbers numbers) {
  if (numbers.skips()) return;
  const Entry& e = entry_of(table, blockIdx.x);
  const auto batch = static_cast<uint32_t>(blockIdx.x - e.first_chunk);
  const double param = sum_of_tiles(e, batch, e.param_squares);
  const double update =
      numbers.step.clipping_threshold != 0 ? sum_of_tiles(e, batch, e.update_squares) : 0;
  if (threadIdx.x != 0) return;
  e.a.sums.param[batch] = param;
  e.a.sums.update[batch] = update;
}

/// Squares of the parameter or of its update in a batch of the global array.
__device__ double squares_of_batch(const Entry& e, uint32_t batch, const double* exchanged,
                                   const float* by_tile) {
  return exchanged != nullptr ? exchanged[batch] : sum_of_tiles(e, batch, by_tile);
}

/// A block a batch: what its unclipped update is multiplied by, from learning rate, size of the
/// parameter, and clipping by the root mean square of the update.
__global__ void __launch_bounds__(kBlockThreads)
    steps_kernel(const __grid_constant__ Table<Entry> table, Numbers numbers) {
  if (numbers.skips()) return;
  const Entry& e = entry_of(table, blockIdx.x);
  const AdafactorStep& step = numbers.step;
  const auto batch = static_cast<uint32_t>(blockIdx.x - e.first_chunk);
  const double elements = e.a.shape.batch_elements;
  float size = step.learning_rate;
  if (e.a.scaled_by_param) {
    const double squares = squares_of_batch(e, batch, e.a.sums.param, e.param_squares);
    float param =
        nan_max(static_cast<float>(step.epsilon2), static_cast<float>(sqrt(squares / elements)));
    const auto largest = static_cast<float>(step.max_parameter_scale);
    if (largest != 0 && largest < param) param = largest;
    size *= param;
  }
  if (step.clipping_threshold != 0) {
    const double squares = squares_of_batch(e, batch, e.a.sums.update, e.update_squares);
    const auto root = static_cast<float>(sqrt(squares / elements));
    size /= nan_max(1.0f, root / static_cast<float>(step.clipping_threshold));
  }
  if (threadIdx.x == 0) e.steps[batch] = size;
}

/// The end of both forms: momentum, weight decay, the new parameter. update: times the step.
__device__ void store_param(const Entry& e, const AdafactorStep& step, int64_t i, int count,
                            float (&update)[kUnit], float& bad) {
  const bool vector = e.vector != 0;
  if (e.a.momentum != nullptr) {
    float m[kUnit];
    auto* const rounded = reinterpret_cast<bf16*>(e.a.momentum);
    if (e.a.momentum_is_bf16)
      load_some(rounded + i, count, vector, m);
    else
      load_some(e.a.momentum + i, count, vector, m);
#pragma unroll
    for (int k = 0; k < kUnit; ++k) {
      update[k] = step.beta1 * m[k] + step.one_minus_beta1 * update[k];
      m[k] = kept(step, update[k], m[k]);
      if (k < count) watch(bad, m[k]);
    }
    if (e.a.momentum_is_bf16)
      store_some(rounded + i, count, vector, m);
    else
      store_some(e.a.momentum + i, count, vector, m);
  }
  float p[kUnit];
  load_some(e.a.param + i, count, vector, p);
#pragma unroll
  for (int k = 0; k < kUnit; ++k) {
    p[k] = kept(step, step.keep * p[k] - update[k], p[k]);
    if (k < count) watch(bad, p[k]);
  }
  store_some(e.a.param + i, count, vector, p);
  if (e.a.copy != nullptr) store_some(static_cast<bf16*>(e.a.copy) + i, count, vector, p);
}

template <typename UpdateOf>
__device__ void apply_tile(const Entry& e, const Tile& tile, const AdafactorStep& step,
                           const UpdateOf& update_of) {
  float bad = 0;
  for_lines(e.a.shape, tile, [&](const Line& line) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const uint32_t column = unit_column(tile, half);
      const int count = line.count(column);
      if (count == 0) continue;
      const int64_t i = line.begin + column;
      float g[kUnit];
      load_gradient(e.a.gradient, i, count, e.vector != 0, g);
      update_of(line, half, i, count, g);
      store_param(e, step, i, count, g, bad);
    }
  });
  mark_if(bad, e.a.not_finite);
}

__global__ void __launch_bounds__(kBlockThreads, 4)
    apply_kernel(const __grid_constant__ Table<Entry> table, Numbers numbers) {
  if (numbers.skips()) return;
  const Entry& e = entry_of(table, blockIdx.x);
  const Tile tile(e.a.shape, blockIdx.x - e.first_chunk);
  const float scale = numbers.gradient_scale();
  const float size = e.steps[tile.steps.batch];
  if (e.a.shape.factored) {
    const Factors factors(e, tile);
    apply_tile(e, tile, numbers.step,
               [&](const Line& line, int half, int64_t, int, float(&g)[kUnit]) {
                 const float across = factors.across(e, line);
#pragma unroll
                 for (int k = 0; k < kUnit; ++k)
                   g[k] = size * (g[k] * scale * across * factors.along[half][k]);
               });
  } else {
    apply_tile(e, tile, numbers.step,
               [&](const Line&, int, int64_t i, int count, float(&g)[kUnit]) {
                 float v[kUnit];
                 load_some(e.a.v + i, count, e.vector != 0, v);
#pragma unroll
                 for (int k = 0; k < kUnit; ++k) g[k] = size * (g[k] * scale * inverse_root(v[k]));
               });
  }
}

/// Floats of scratch memory an array needs, and where its parts lie from `base` on.
int64_t place(Entry& e, float* base) {
  const AdafactorShape& s = e.a.shape;
  int64_t used = 0;
  const auto take = [&](int64_t count) {
    float* p = base == nullptr ? nullptr : base + used;
    used += count;
    return p;
  };
  if (s.factored) {
    e.along_sums = take(s.groups * member_tiles(s) * s.length);
    e.across_sums = take(column_tiles(s) * s.groups * s.members);
    e.along = take(s.along_elements());
    e.across = take(s.across_elements());
    e.rows = take(s.along_is_row ? s.along_elements() : s.across_elements());
    e.root_means = take(s.batches);
  }
  e.steps = take(s.batches);
  e.param_squares = take(tiles(s));
  e.update_squares = take(tiles(s));
  return used;
}

bool is_vector(const AdafactorGpuArray& a) {
  return a.shape.length % kUnit == 0 && a.shape.elements % kUnit == 0 &&
         are_aligned({a.gradient.pointer, a.param, a.v, a.momentum, a.copy});
}

/// One update of the arrays of `entries`, whose scratch memory has been placed.
void update(std::span<const Entry> entries, const Numbers& numbers, const ExchangeSums& exchange,
            Stream stream) {
  const auto each = [&](auto kernel, const auto& chunks_of, auto... more) {
    in_tables<Entry>(entries, chunks_of, [&](const Table<Entry>& table, int64_t chunks) {
      simt::launch(kernel,
                   {.grid = static_cast<unsigned>(chunks),
                    .block = kBlockThreads,
                    .shared = kShared,
                    .stream = stream},
                   table, numbers, more...);
    });
  };
  const auto all_tiles = [](const Entry& e) { return tiles(e.a.shape); };
  const auto all_batches = [](const Entry& e) {
    return e.a.shape.elements == 0 ? int64_t{0} : int64_t{e.a.shape.batches};
  };
  const auto moments = [](const Entry& e) { return moment_chunks(e.a.shape); };
  const auto means = [&](const Entry& e) { return e.a.shape.factored ? all_batches(e) : 0; };
  // Of sharded arrays alone, whose sums go to the other ranks before they are used.
  const auto sharded = [](const auto& chunks_of) {
    return [&](const Entry& e) { return is_sharded(e) ? chunks_of(e) : int64_t{0}; };
  };
  const auto exchange_after = [&](AdafactorExchange what, const auto& sum) {
    if (std::none_of(entries.begin(), entries.end(), is_sharded)) return;
    sum();
    exchange(what);
  };
  each(sums_kernel, all_tiles);
  exchange_after(AdafactorExchange::moments,
                 [&] { each(moments_kernel, sharded(moments), Phase::sum); });
  each(moments_kernel, moments, Phase::use);
  exchange_after(AdafactorExchange::means, [&] { each(means_kernel, sharded(means), Phase::sum); });
  each(means_kernel, means, Phase::use);
  if (numbers.step.clipping_threshold != 0)
    each(squares_kernel, [](const Entry& e) { return e.a.shape.factored ? tiles(e.a.shape) : 0; });
  exchange_after(AdafactorExchange::squares,
                 [&] { each(batch_squares_kernel, sharded(all_batches)); });
  each(steps_kernel, all_batches);
  each(apply_kernel, all_tiles);
}

}  // namespace
}  // namespace adafactor

void update_adafactor_gpu(std::span<const AdafactorGpuArray> arrays, const AdafactorStep& step,
                          const UpdateControl* control, const ExchangeSums& exchange,
                          Stream stream) {
  using namespace adafactor;
  std::vector<Entry> entries;
  int64_t floats = 0;
  for (const AdafactorGpuArray& array : arrays) {
    Entry e{};
    e.a = array;
    QT_ASSERT(
        e.a.shape.elements == 0 ||
        (e.a.shape.factored ? e.a.v_row != nullptr && e.a.v_col != nullptr : e.a.v != nullptr));
    e.vector = is_vector(e.a) ? 1 : 0;
    floats += place(e, nullptr);
    entries.push_back(e);
  }
  const simt::Scratch workspace(floats * static_cast<int64_t>(sizeof(float)), stream);
  float* at = workspace.data<float>();
  for (Entry& e : entries) at += place(e, at);
  update(entries, Numbers{step, control}, exchange, stream);
}

}  // namespace quintet::QT_GPU
