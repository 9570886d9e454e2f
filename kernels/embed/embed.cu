#include "kernels/elementwise/elementwise_gpu.h"
#include "kernels/embed/embed_gpu.h"
#include "kernels/simt/fault.cuh"
#include "kernels/simt/host/algorithms.h"
#include "kernels/simt/host/scratch.h"
#include "kernels/vectors/operands_gpu.h"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU {
namespace {

/// A block of rows [begin, begin + rows) of a table of `vocabulary` rows.
struct RowRange {
  int64_t begin, rows, vocabulary;
};
RowRange local_rows(const View& table) { return {table.origin[0], table.size(0), table.global[0]}; }

/// The id's row in the block, or -1.
__device__ int64_t local_row(int32_t id, const RowRange& range) {
  const int64_t row = id - range.begin;
  return row >= 0 && row < range.rows ? row : -1;
}
__device__ void check_id(int32_t id, int64_t position, const RowRange& range, FaultSlot* fault) {
  if (id < 0 || id >= range.vocabulary)
    simt::raise_fault(fault, FaultCode::kEmbedId, id, position, range.vocabulary);
}

/// y[i] = table[ids[i]], a thread kCount elements.
template <int kCount, typename T>
__global__ void gather(const int32_t* ids, int64_t count, const T* table, int64_t depth,
                       RowRange range, T* y, FaultSlot* fault) {
  const int64_t units = depth / kCount, threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t u = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; u < count * units;
       u += threads) {
    const int64_t position = u / units, column = u % units * kCount;
    const int32_t id = ids[position];
    if (column == 0) check_id(id, position, range, fault);
    const int64_t row = local_row(id, range);
    float v[kCount] = {};
    if (row >= 0) load<kCount>(table + row * depth + column, v);
    store<kCount>(y + position * depth + column, v);
  }
}

/// Keys to sort positions by: the row, or `range.rows` for ids that the block does not hold.
__global__ void make_keys(const int32_t* ids, int64_t count, RowRange range, int32_t* keys,
                          int32_t* positions, FaultSlot* fault) {
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += threads) {
    check_id(ids[i], i, range, fault);
    const int64_t row = local_row(ids[i], range);
    keys[i] = static_cast<int32_t>(row < 0 ? range.rows : row);
    positions[i] = static_cast<int32_t>(i);
  }
}

// Sorted positions that one block adds up.
constexpr int kRun = 32;
constexpr int kAhead = 8;  // of which a thread loads at once

/// Positions sorted by row. partials: [blocks of kRun positions, 2, depth], sums of a row's
/// positions in a block that are not all of them: [0] of a row begun in an earlier block, [1] of a
/// row that begins here and goes on.
template <typename T>
struct Sorted {
  const int32_t *rows, *positions;
  int64_t count;
  int32_t no_row;
  const T* dy;
  int64_t depth;
  float *partials, *dtable;
};

/// Adds to a row of the table's gradient.
template <int kCount>
__device__ void add_to_row(float* row, const float (&sum)[kCount]) {
  float v[kCount];
  load<kCount>(row, v);
#pragma unroll
  for (int k = 0; k < kCount; ++k) v[k] += sum[k];
  store<kCount>(row, v);
}

/// A block takes kRun positions (blockIdx.x) and kBlockThreads units of columns (blockIdx.y).
template <int kCount, typename T>
__global__ void __launch_bounds__(kBlockThreads) add_runs(const __grid_constant__ Sorted<T> s) {
  const int64_t column = (int64_t{blockIdx.y} * kBlockThreads + threadIdx.x) * kCount;
  if (column >= s.depth) return;
  const int64_t begin = int64_t{blockIdx.x} * kRun;
  const int64_t end = begin + kRun < s.count ? begin + kRun : s.count;
  float* partials = s.partials + int64_t{blockIdx.x} * 2 * s.depth;
  bool begins_here = begin == 0 || s.rows[begin - 1] != s.rows[begin];
  float sum[kCount] = {};
  for (int64_t first = begin; first < end; first += kAhead) {
    // Loads of several positions are under way before the first is added.
    float v[kAhead][kCount];
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      if (first + j < end)
        load<kCount>(s.dy + int64_t{s.positions[first + j]} * s.depth + column, v[j]);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int64_t i = first + j;
      if (i >= end) return;
      const int32_t row = s.rows[i];
      if (row == s.no_row) return;  // they are the last
#pragma unroll
      for (int k = 0; k < kCount; ++k) sum[k] += v[j][k];
      const bool is_last = i + 1 == s.count || s.rows[i + 1] != row;
      if (!is_last && i + 1 < end) continue;
      if (begins_here && is_last)
        add_to_row(s.dtable + row * s.depth + column, sum);
      else
        store<kCount>((begins_here ? partials + s.depth : partials) + column, sum);
      begins_here = true;
#pragma unroll
      for (int k = 0; k < kCount; ++k) sum[k] = 0;
    }
  }
}

/// Rows whose positions fill more than one block: the block in which such a row begins adds the
/// parts.
template <int kCount, typename T>
__global__ void __launch_bounds__(kBlockThreads) join_runs(const __grid_constant__ Sorted<T> s) {
  const int64_t column = (int64_t{blockIdx.y} * kBlockThreads + threadIdx.x) * kCount;
  const int64_t begin = int64_t{blockIdx.x} * kRun, last = begin + kRun - 1;
  if (column >= s.depth || last + 1 >= s.count) return;
  const int32_t row = s.rows[last];
  if (row == s.no_row || s.rows[last + 1] != row) return;
  // Where the whole block is one row that began before, its first block adds it.
  if (begin > 0 && s.rows[begin] == row && s.rows[begin - 1] == row) return;
  float sum[kCount], v[kCount];
  load<kCount>(s.partials + (int64_t{blockIdx.x} * 2 + 1) * s.depth + column, sum);
  for (int64_t block = blockIdx.x + 1; block * kRun < s.count && s.rows[block * kRun] == row;
       ++block) {
    load<kCount>(s.partials + block * 2 * s.depth + column, v);
#pragma unroll
    for (int k = 0; k < kCount; ++k) sum[k] += v[k];
  }
  add_to_row(s.dtable + row * s.depth + column, sum);
}

template <typename T>
void add_rows(Sorted<T> s, bool vector, Stream stream) {
  const int64_t blocks = (s.count + kRun - 1) / kRun;
  const simt::Scratch partials(blocks * 2 * s.depth * static_cast<int64_t>(sizeof(float)), stream);
  s.partials = partials.data<float>();
  const auto run = [&](auto kernel, int count) {
    const int64_t units = s.depth / count;
    const auto columns = static_cast<unsigned>((units + kBlockThreads - 1) / kBlockThreads);
    simt::launch(kernel,
                 {.grid = {static_cast<unsigned>(blocks), columns},
                  .block = kBlockThreads,
                  .stream = stream},
                 s);
  };
  constexpr int kCount = 4;
  if (vector && s.depth % kCount == 0) {
    run(add_runs<kCount, T>, kCount);
    run(join_runs<kCount, T>, kCount);
  } else {
    run(add_runs<1, T>, 1);
    run(join_runs<1, T>, 1);
  }
}

int bits_of(int64_t largest) {
  int bits = 1;
  while (largest >> bits != 0) ++bits;
  return bits;
}

}  // namespace

void embed_gpu(Views in, Views out, const Attrs&, Stream stream) {
  const View &ids_view = in[0], &table_view = in[1], &y_view = out[0];
  const int64_t count = ids_view.elements(), depth = y_view.depth();
  expect_shape(table_view.rank == 2 && table_view.size(1) == depth && y_view.rows() == count,
               "embed", "..., ve -> ...e");
  if (count * depth == 0) return;
  const auto* ids = ids_view.data<const int32_t>();
  const RowRange range = local_rows(table_view);
  for_dtype(table_view, "embed", [&]<typename T>(T) {
    const T* table = elements<T>(table_view, "embed", "table");
    T* y = elements<T>(y_view, "embed", "y");
    const bool vector = are_aligned({table, y}) && depth % kLanes<T> == 0;
    simt::launch(vector ? gather<kLanes<T>, T> : gather<1, T>,
                 {.grid = blocks_for(count * (vector ? depth / kLanes<T> : depth)),
                  .block = kBlockThreads,
                  .stream = stream},
                 ids, count, table, depth, range, y, simt::fault_slot());
  });
}

void embed_grad_gpu(Views in, Views out, const Attrs&, Stream stream) {
  const char* op = "embed_grad";
  const View &ids_view = in[0], &dy_view = in[1], &dtable_view = out[0];
  const int64_t count = ids_view.elements(), depth = dy_view.depth();
  expect_shape(dtable_view.rank == 2 && dtable_view.size(1) == depth && dy_view.rows() == count, op,
               "..., ...e -> ve");
  QT_ASSERT(count < int64_t{1} << 31 && dtable_view.size(0) < (int64_t{1} << 31) - 1);
  if (!put_addend(addend_of(in, 2, 0), dtable_view)) fill_gpu(dtable_view, 0, stream);
  if (count * depth == 0) return;
  const auto* ids = ids_view.data<const int32_t>();
  const RowRange range = local_rows(dtable_view);
  const simt::Scratch workspace(4 * count * static_cast<int64_t>(sizeof(int32_t)), stream);
  auto* keys = workspace.data<int32_t>();
  int32_t *positions = keys + count, *rows = keys + 2 * count, *order = keys + 3 * count;
  simt::launch(make_keys, {.grid = blocks_for(count), .block = kBlockThreads, .stream = stream},
               ids, count, range, keys, positions, simt::fault_slot());
  simt::sort_pairs({.keys = keys,
                    .values = positions,
                    .sorted_keys = rows,
                    .sorted_values = order,
                    .n = count,
                    .bits = bits_of(range.rows)},
                   stream);
  float* dtable = elements<float>(dtable_view, op, "dtable");
  for_dtype(dy_view, op, [&]<typename T>(T) {
    const T* dy = elements<T>(dy_view, op, "dy");
    add_rows<T>({.rows = rows,
                 .positions = order,
                 .count = count,
                 .no_row = static_cast<int32_t>(range.rows),
                 .dy = dy,
                 .depth = depth,
                 .partials = nullptr,
                 .dtable = dtable},
                are_aligned({dy, dtable}), stream);
  });
}

}  // namespace quintet::QT_GPU
