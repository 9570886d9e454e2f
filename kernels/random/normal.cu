// Normal numbers of many arrays in one launch.

#include <vector>

#include "kernels/random/erfinv.h"
#include "kernels/random/random_gpu.h"
#include "kernels/random/row_numbers.cuh"
#include "kernels/random/threefry.cuh"
#include "kernels/vectors/multi.cuh"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {
namespace {

constexpr int64_t kChunk = 4096;  // elements of a block
constexpr int kThreads = 256;

struct Entry {
  float* out;
  int64_t n, depth;  // elements; of a row
  Key key;
  RowNumbers numbers;
  int64_t first_chunk;
};

template <size_t kCount>
QT_DEVICE float polynomial(const float (&coefficients)[kCount], float t) {
  float p = coefficients[0];
#pragma unroll
  for (size_t i = 1; i < kCount; ++i) p = fmaf(p, t, coefficients[i]);
  return p;
}

/// sqrt(2) erfinv(u), u uniform above -1 and below 1, from 23 of the bits: the steps of random.cpp.
QT_DEVICE float normal_of(uint32_t bits) {
  constexpr float kLow = -0x1.fffffep-1f, kSpan = 1.0f - kLow;
  constexpr float kCentre[] = {QT_ERFINV_CENTRE}, kTail[] = {QT_ERFINV_TAIL};
  const float unit = __uint_as_float(bits >> 9 | 0x3f800000u) - 1.0f;
  const float u = fmaxf(kLow, fmaf(unit, kSpan, kLow));
  const float w = -log1pf(-u * u);
  const float p = w < 5.0f ? polynomial(kCentre, w - 2.5f) : polynomial(kTail, sqrtf(w) - 3.0f);
  return p * u * 1.41421354f;
}

__global__ void __launch_bounds__(kThreads)
    fill_normals(const __grid_constant__ Table<Entry> table) {
  const Entry& e = entry_of(table, blockIdx.x);
  const int64_t begin = (blockIdx.x - e.first_chunk) * kChunk;
  const int64_t end = begin + kChunk < e.n ? begin + kChunk : e.n;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const auto number = e.numbers.unsharded
                            ? static_cast<uint64_t>(i)
                            : e.numbers.first(i / e.depth) + static_cast<uint64_t>(i % e.depth);
    e.out[i] = normal_of(threefry_bits(e.key, number));
  }
}

}  // namespace

void fill_normals_gpu(Views arrays, std::span<const Key> keys, Stream stream) {
  QT_ASSERT(arrays.size() == keys.size());
  std::vector<Entry> entries;
  for (size_t i = 0; i < arrays.size(); ++i)
    entries.push_back({arrays[i].data<float>(), arrays[i].elements(), arrays[i].depth(), keys[i],
                       RowNumbers(arrays[i]), 0});
  in_tables<Entry>(
      entries, [](const Entry& e) { return (e.n + kChunk - 1) / kChunk; },
      [&](const Table<Entry>& table, int64_t chunks) {
        simt::launch(fill_normals,
                     {.grid = static_cast<unsigned>(chunks), .block = kThreads, .stream = stream},
                     table);
      });
}

}  // namespace quintet::QT_GPU
