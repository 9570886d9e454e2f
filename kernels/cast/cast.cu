#include <vector>

#include "kernels/cast/cast_gpu.h"
#include "kernels/vectors/multi.cuh"
#include "kernels/vectors/operands_gpu.h"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU {
namespace {

constexpr int64_t kChunk = 8192;  // elements of a block
constexpr int kUnit = 8;          // of a thread at a time

struct Entry {
  const void* from;
  void* to;
  int64_t n, first_chunk;
  int32_t vector;
};

template <typename From, typename To>
__global__ void cast_kernel(const __grid_constant__ Table<Entry> table) {
  const Entry& e = entry_of(table, blockIdx.x);
  const int64_t begin = (blockIdx.x - e.first_chunk) * kChunk;
  const int64_t end = begin + kChunk < e.n ? begin + kChunk : e.n;
  const From* from = static_cast<const From*>(e.from);
  To* to = static_cast<To*>(e.to);
  int64_t i = begin + threadIdx.x * kUnit;
  if (e.vector != 0) {
    for (; i + kUnit <= end; i += kBlockThreads * kUnit) {
      float v[kUnit];
      load<kUnit>(from + i, v);
      store<kUnit>(to + i, v);
    }
  }
  // Only the thread with the last, short unit is left; without vectors, all are.
  for (; i < end; i += kBlockThreads * kUnit)
    for (int64_t k = i; k < i + kUnit && k < end; ++k)
      to[k] = simt::from_float<To>(simt::to_float(from[k]));
}

template <typename From, typename To>
void cast_arrays(std::span<const Entry> entries, Stream stream) {
  in_tables<Entry>(
      entries, [](const Entry& e) { return (e.n + kChunk - 1) / kChunk; },
      [&](const Table<Entry>& table, int64_t chunks) {
        simt::launch(
            cast_kernel<From, To>,
            {.grid = static_cast<unsigned>(chunks), .block = kBlockThreads, .stream = stream},
            table);
      });
}

}  // namespace

void cast_gpu(Views from, Views to, Stream stream) {
  QT_ASSERT(from.size() == to.size());
  std::vector<Entry> entries[2][2];  // by dtype from, to
  for (size_t i = 0; i < from.size(); ++i) {
    expect_shape(from[i].elements() == to[i].elements(), "cast", "... -> ...");
    activation_dtype(from[i], "cast");
    activation_dtype(to[i], "cast");
    entries[is_bf16(from[i]) ? 1 : 0][is_bf16(to[i]) ? 1 : 0].push_back(
        {from[i].pointer, to[i].pointer, from[i].elements(), 0,
         are_aligned({from[i].pointer, to[i].pointer}) ? 1 : 0});
  }
  cast_arrays<float, float>(entries[0][0], stream);
  cast_arrays<float, bf16>(entries[0][1], stream);
  cast_arrays<bf16, float>(entries[1][0], stream);
  cast_arrays<bf16, bf16>(entries[1][1], stream);
}

}  // namespace quintet::QT_GPU
