#include <vector>

#include "kernels/optimizers/optimizers_gpu.h"
#include "kernels/optimizers/used_gradient.cuh"
#include "kernels/simt/host/scratch.h"
#include "kernels/vectors/multi.cuh"
#include "kernels/vectors/vectors.cuh"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {
namespace {

constexpr int64_t kChunk = 32768;  // elements of a block
// Squares added in float32 before the sum goes on in double.
constexpr int kUnit = 4, kUnits = 4;

struct Entry {
  FloatPointer x;
  int64_t n, first_chunk, index;
  int32_t vector;
};

int64_t chunks_of(int64_t n) { return n == 0 ? 1 : (n + kChunk - 1) / kChunk; }

/// What a thread knows of its numbers.
struct Measured {
  double squares = 0;
  float largest = 0;

  /// A float32 sum may overflow although every number is finite.
  template <int kCount>
  __device__ void add(const float (&v)[kCount]) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      sum += v[k] * v[k];
      largest = fmaxf(largest, fabsf(v[k]));
    }
    if (sum <= 3e38f) {
      squares += static_cast<double>(sum);
    } else {
#pragma unroll
      for (int k = 0; k < kCount; ++k)
        squares += static_cast<double>(v[k]) * static_cast<double>(v[k]);
    }
  }
};

/// The block's result, on all threads.
__device__ ArrayStatistics of_block(const Measured& m) {
  const double squares = block_sum(m.squares, simt::shared<double>(0, 32));
  const float largest = block_max(m.largest, simt::shared<float>(256, 32));
  return {squares, largest, squares <= 1.7976931348623157e308 ? 1 : 0};
}

__global__ void __launch_bounds__(kBlockThreads)
    measure_chunks(const __grid_constant__ Table<Entry> table, ArrayStatistics* chunks) {
  const Entry& e = entry_of(table, blockIdx.x);
  const int64_t begin = (blockIdx.x - e.first_chunk) * kChunk;
  const int64_t end = begin + kChunk < e.n ? begin + kChunk : e.n;
  constexpr int64_t kStride = kBlockThreads * kUnit;
  Measured m;
  int64_t i = begin + threadIdx.x * kUnit;
  if (e.vector != 0) {
    for (; i + (kUnits - 1) * kStride + kUnit <= end; i += kUnits * kStride) {
      float v[kUnits * kUnit];
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        float four[kUnit];
        load<kUnit>(e.x, i + u * kStride, four);
#pragma unroll
        for (int k = 0; k < kUnit; ++k) v[u * kUnit + k] = four[k];
      }
      m.add(v);
    }
  }
  for (; i < end; i += kStride)
    for (int64_t k = i; k < i + kUnit && k < end; ++k) {
      float one[1];
      load<1>(e.x, k, one);
      m.add(one);
    }
  const ArrayStatistics result = of_block(m);
  if (threadIdx.x == 0) chunks[table.chunks_before + blockIdx.x] = result;
}

/// Adds up `count` statistics on one block.
__device__ ArrayStatistics join(const ArrayStatistics* parts, int64_t count) {
  Measured m;
  for (int64_t c = threadIdx.x; c < count; c += kBlockThreads) {
    m.squares += parts[c].squares;
    m.largest = fmaxf(m.largest, parts[c].largest);
  }
  return of_block(m);
}

/// A block an array.
__global__ void __launch_bounds__(kBlockThreads)
    join_chunks(const __grid_constant__ Table<Entry> table, const ArrayStatistics* chunks,
                ArrayStatistics* statistics, double* squares) {
  const Entry& e = table.entries[blockIdx.x];
  const int64_t count = e.n == 0 ? 1 : (e.n + kChunk - 1) / kChunk;
  const ArrayStatistics result = join(chunks + table.chunks_before + e.first_chunk, count);
  if (threadIdx.x != 0) return;
  statistics[e.index] = result;
  if (squares != nullptr) squares[e.index] = result.squares;
}

__global__ void __launch_bounds__(kBlockThreads)
    join_arrays(ArrayStatistics* statistics, int64_t count) {
  const ArrayStatistics result = join(statistics, count);
  if (threadIdx.x == 0) statistics[count] = result;
}

/// A warp: its lanes fetch, the first one adds.
__global__ void summarize(const double* squares, const int32_t* marks, int64_t count,
                          GradientSummary* summary) {
  double total = 0;
  bool marked = false;
  for (int64_t begin = 0; begin < count; begin += 32) {
    const int64_t i = begin + threadIdx.x;
    const double mine = i < count ? squares[i] : 0;
    marked |= i < count && marks != nullptr && marks[i] != 0;
    for (int lane = 0; lane < 32; ++lane) total += __shfl_sync(kWholeWarp, mine, lane);
  }
  const bool any = __any_sync(kWholeWarp, marked) != 0;
  if (threadIdx.x == 0) *summary = {total, any ? 1 : 0};
}

__global__ void decide(const double* squares, double max_norm, const UpdateControl* given,
                       UpdateControl* control) {
  const double norm = sqrt(*squares);
  const bool is_finite = norm - norm == 0;
  control->skip = is_finite && (given == nullptr || given->skip == 0) ? 0 : 1;
  control->scale = max_norm == 0 || norm < max_norm ? 1.0f : static_cast<float>(max_norm / norm);
}

constexpr size_t kShared = 256 + 32 * sizeof(float);

}  // namespace

void measure_arrays_gpu(Views arrays, ArrayStatistics* statistics, double* squares, Stream stream) {
  std::vector<Entry> entries;
  int64_t chunks = 0;
  for (const View& view : arrays) {
    const FloatPointer x(view);
    const int64_t n = view.absent() ? 0 : view.elements();
    entries.push_back(
        {x, n, 0, static_cast<int64_t>(entries.size()), are_aligned({x.pointer}) ? 1 : 0});
    chunks += chunks_of(n);
  }
  const simt::Scratch parts(chunks * static_cast<int64_t>(sizeof(ArrayStatistics)), stream);
  auto* part = parts.data<ArrayStatistics>();
  in_tables<Entry>(
      entries, [](const Entry& e) { return chunks_of(e.n); },
      [&](const Table<Entry>& table, int64_t blocks) {
        const simt::Launch how{.grid = static_cast<unsigned>(blocks),
                               .block = kBlockThreads,
                               .shared = kShared,
                               .stream = stream};
        simt::launch(measure_chunks, how, table, part);
        simt::Launch an_array = how;
        an_array.grid = static_cast<unsigned>(table.count);
        simt::launch(join_chunks, an_array, table, part, statistics, squares);
      });
  simt::launch(join_arrays,
               {.grid = 1, .block = kBlockThreads, .shared = kShared, .stream = stream}, statistics,
               static_cast<int64_t>(arrays.size()));
}

void summarize_gradients_gpu(const double* squares, const int32_t* marks, int64_t count,
                             GradientSummary* summary, Stream stream) {
  simt::launch(summarize, {.grid = 1, .block = 32, .stream = stream}, squares, marks, count,
               summary);
}

void decide_update_gpu(const double* squares, double max_norm, const UpdateControl* given,
                       UpdateControl* control, Stream stream) {
  simt::launch(decide, {.grid = 1, .block = 1, .stream = stream}, squares, max_norm, given,
               control);
}

}  // namespace quintet::QT_GPU
