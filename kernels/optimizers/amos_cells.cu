// Amos with small states: a warp adds up a cell, a thread updates one, and a pass over the parameters takes what came of it.

#include <vector>

#include "kernels/optimizers/chunk.cuh"
#include "kernels/optimizers/optimizers_gpu.h"
#include "kernels/optimizers/watch.cuh"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {
namespace {

constexpr int kWarps = kBlockThreads / 32;

/// Chunks are of cells, or of elements.
struct Entry {
  AmosCells arrays;
  int64_t first_chunk;
};

/// Members of a cell are added lane by lane, then the lanes: an order of their own, whatever runs beside.
__global__ void __launch_bounds__(kBlockThreads)
    sum_cells(const __grid_constant__ Table<Entry> table) {
  const Entry& e = entry_of(table, blockIdx.x);
  const AmosCells& a = e.arrays;
  const int64_t cell = (blockIdx.x - e.first_chunk) * kWarps + threadIdx.x / 32;
  if (cell >= a.cells) return;
  const int64_t members = a.n / a.cells;
  double sum = 0;
  for (int64_t m = threadIdx.x % 32; m < members; m += 32) {
    const auto g = static_cast<double>(a.gradient[a.element_of(cell, m)]);
    sum += g * g;
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) a.sums[cell] = sum;
}

__global__ void __launch_bounds__(kBlockThreads)
    update_cells(const __grid_constant__ Table<Entry> table, const rules::Amos rule,
                 const UpdateControl* control) {
  if (control != nullptr && control->skip != 0) return;
  const Entry& e = entry_of(table, blockIdx.x);
  const AmosCells& a = e.arrays;
  const int64_t cell = (blockIdx.x - e.first_chunk) * kBlockThreads + threadIdx.x;
  if (cell >= a.cells) return;
  a.update_cell(rule, cell);
  float bad = 0;
  watch(bad, a.v[cell]);
  watch(bad, a.b[cell]);
  mark_if(bad, a.not_finite);
}

__global__ void __launch_bounds__(kBlockThreads)
    apply_cells(const __grid_constant__ Table<Entry> table, const UpdateControl* control) {
  if (control != nullptr && control->skip != 0) return;
  const Entry& e = entry_of(table, blockIdx.x);
  const AmosCells& a = e.arrays;
  const int64_t begin = (blockIdx.x - e.first_chunk) * kChunk;
  const int64_t end = begin + kChunk < a.n ? begin + kChunk : a.n;
  for (int64_t i = begin + threadIdx.x; i < end; i += kBlockThreads) {
    const int64_t cell = a.cell_of(i);
    a.gradient[i] = a.decay[cell] * a.param[i] - a.rate[cell] * a.gradient[i];
  }
}

/// launch(table, blocks) with `per_block` cells or elements to a block.
template <typename CountOf, typename Launch>
void over(std::span<const AmosCells> arrays, const CountOf& count_of, int64_t per_block,
          const Launch& launch) {
  std::vector<Entry> entries;
  for (const AmosCells& a : arrays) entries.push_back({a, 0});
  in_tables<Entry>(
      entries, [&](const Entry& e) { return (count_of(e.arrays) + per_block - 1) / per_block; },
      [&](const Table<Entry>& table, int64_t blocks) {
        launch(table, static_cast<unsigned>(blocks));
      });
}
int64_t cells_of(const AmosCells& a) { return a.cells; }

}  // namespace

void sum_amos_cells_gpu(std::span<const AmosCells> arrays, Stream stream) {
  over(arrays, cells_of, kWarps, [&](const Table<Entry>& table, unsigned blocks) {
    simt::launch(sum_cells, {.grid = blocks, .block = kBlockThreads, .stream = stream}, table);
  });
}

void update_amos_cells_gpu(std::span<const AmosCells> arrays, const rules::Amos& rule,
                           const UpdateControl* control, Stream stream) {
  over(arrays, cells_of, kBlockThreads, [&](const Table<Entry>& table, unsigned blocks) {
    simt::launch(update_cells, {.grid = blocks, .block = kBlockThreads, .stream = stream}, table,
                 rule, control);
  });
  over(
      arrays, [](const AmosCells& a) { return a.n; }, kChunk,
      [&](const Table<Entry>& table, unsigned blocks) {
        simt::launch(apply_cells, {.grid = blocks, .block = kBlockThreads, .stream = stream}, table,
                     control);
      });
}

}  // namespace quintet::QT_GPU
