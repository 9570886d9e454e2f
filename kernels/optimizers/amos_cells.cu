// Amos with small states: a warp, or a block, adds up a cell, a thread updates one, and a pass over the parameters takes what came of it.

#include <vector>

#include "kernels/optimizers/chunk.cuh"
#include "kernels/optimizers/optimizers_gpu.h"
#include "kernels/optimizers/used_gradient.cuh"
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

constexpr int64_t kMembersOfAWarp = 8192;  // at most; a larger cell has a block for itself
__host__ __device__ bool has_block(const AmosCells& a) { return a.n / a.cells > kMembersOfAWarp; }

/// Members of a cell are added thread by thread, then the threads: an order of its own, whatever runs beside.
__global__ void __launch_bounds__(kBlockThreads)
    sum_cells(const __grid_constant__ Table<Entry> table) {
  const Entry& e = entry_of(table, blockIdx.x);
  const AmosCells& a = e.arrays;
  const int64_t place = blockIdx.x - e.first_chunk;
  const bool whole = has_block(a);
  const int64_t cell = whole ? place : place * kWarps + threadIdx.x / 32;
  const int thread = whole ? threadIdx.x : threadIdx.x % 32;
  if (cell >= a.cells) return;  // of warps alone
  const int64_t members = a.n / a.cells;
  double sum = 0;
  for (int64_t m = thread; m < members; m += whole ? kBlockThreads : 32) {
    float g[1];
    load<1>(a.gradient, a.element_of(cell, m), g);
    sum += static_cast<double>(g[0]) * static_cast<double>(g[0]);
  }
  sum = whole ? block_sum(sum, simt::shared<double>(0, 32)) : warp_sum(sum);
  if (thread == 0) a.sums[cell] = sum;
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
    float g[1];
    load<1>(a.gradient, i, g);
    g[0] = a.decay[cell] * a.param[i] - a.rate[cell] * g[0];
    store<1>(a.gradient, i, g);
  }
}

/// launch(table, blocks) with `blocks_of` an array.
template <typename BlocksOf, typename Launch>
void over(std::span<const AmosCells> arrays, const BlocksOf& blocks_of, const Launch& launch) {
  std::vector<Entry> entries;
  for (const AmosCells& a : arrays) entries.push_back({a, 0});
  in_tables<Entry>(
      entries, [&](const Entry& e) { return blocks_of(e.arrays); },
      [&](const Table<Entry>& table, int64_t blocks) {
        launch(table, static_cast<unsigned>(blocks));
      });
}
int64_t divided_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

}  // namespace

void sum_amos_cells_gpu(std::span<const AmosCells> arrays, Stream stream) {
  over(
      arrays,
      [](const AmosCells& a) {
        return a.cells == 0 ? 0 : has_block(a) ? a.cells : divided_up(a.cells, kWarps);
      },
      [&](const Table<Entry>& table, unsigned blocks) {
        simt::launch(sum_cells,
                     {.grid = blocks,
                      .block = kBlockThreads,
                      .shared = 32 * sizeof(double),
                      .stream = stream},
                     table);
      });
}

void update_amos_cells_gpu(std::span<const AmosCells> arrays, const rules::Amos& rule,
                           const UpdateControl* control, Stream stream) {
  over(
      arrays, [](const AmosCells& a) { return divided_up(a.cells, kBlockThreads); },
      [&](const Table<Entry>& table, unsigned blocks) {
        simt::launch(update_cells, {.grid = blocks, .block = kBlockThreads, .stream = stream},
                     table, rule, control);
      });
  over(
      arrays, [](const AmosCells& a) { return divided_up(a.n, kChunk); },
      [&](const Table<Entry>& table, unsigned blocks) {
        simt::launch(apply_cells, {.grid = blocks, .block = kBlockThreads, .stream = stream}, table,
                     control);
      });
}

}  // namespace quintet::QT_GPU
