#pragma once
// One launch over a list of arrays: the list travels as a kernel parameter, so nothing has to be
// copied to the device and a captured graph keeps it. A block takes a chunk of one array.
//
//   struct Entry { const float* x; int64_t n; int64_t first_chunk; };
//   __global__ void kernel(const __grid_constant__ Table<Entry> table) {
//     const Entry& e = entry_of(table, blockIdx.x);
//     const int64_t begin = (blockIdx.x - e.first_chunk) * kChunk;
//   }
//   in_tables<Entry>(entries, chunks_of,
//                    [&](const Table<Entry>& table, int64_t chunks) { launch });

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/simt/simt.cuh"

namespace quintet::QT_GPU {

/// Parameters of a kernel may take 32764 bytes (CUDA 12.1, compute capability 7.0); the rest is for
/// the kernel's other parameters.
inline constexpr size_t kTableBytes = 30000;

/// As many entries as fit. Entry has an int64_t first_chunk: chunks of the entries before it.
template <typename Entry>
struct Table {
  static constexpr int kMost = static_cast<int>(kTableBytes / sizeof(Entry));
  int64_t count = 0;
  int64_t first_entry = 0;    // place of entries[0] in the whole list
  int64_t chunks_before = 0;  // chunks of the tables before this one
  Entry entries[static_cast<size_t>(kMost)];
};

/// Place in the table of the entry that a chunk belongs to.
template <typename Entry>
QT_DEVICE int entry_index(const Table<Entry>& table, int64_t chunk) {
  int low = 0, high = static_cast<int>(table.count);
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.entries[middle].first_chunk <= chunk)
      low = middle;
    else
      high = middle;
  }
  return low;
}
template <typename Entry>
QT_DEVICE const Entry& entry_of(const Table<Entry>& table, int64_t chunk) {
  return table.entries[entry_index(table, chunk)];
}

/// Cuts `entries` into tables and calls run(table, its chunks) for each; chunks_of(entry) is the
/// number of its chunks. Entries without chunks are in no table.
template <typename Entry, typename ChunksOf, typename Run>
void in_tables(std::span<const Entry> entries, const ChunksOf& chunks_of, const Run& run) {
  Table<Entry> table;
  int64_t chunks = 0;
  const auto flush = [&] {
    if (table.count > 0) run(table, chunks);
    table.chunks_before += chunks;
    table.count = 0;
    chunks = 0;
  };
  for (size_t i = 0; i < entries.size(); ++i) {
    const int64_t more = chunks_of(entries[i]);
    if (more == 0) continue;
    constexpr int64_t kMostChunks = int64_t{1} << 30;  // blocks of a grid
    if (table.count == Table<Entry>::kMost || chunks + more > kMostChunks) flush();
    if (table.count == 0) table.first_entry = static_cast<int64_t>(i);
    Entry& entry = table.entries[table.count++];
    entry = entries[i];
    entry.first_chunk = chunks;
    chunks += more;
  }
  flush();
}

}  // namespace quintet::QT_GPU
