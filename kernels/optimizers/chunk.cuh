#pragma once
// How a block of an optimizer's pass goes over its chunk of one array.
//
//   const Entry& e = entry_of(table, blockIdx.x);     // using Entry = ArrayEntry<UpdateArrays>
//   for_units_of_chunk(e, [&](auto count, int64_t i) { update_unit<count.value>(e.arrays, .., i); });

#include "kernels/vectors/multi.cuh"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU {

inline constexpr int64_t kChunk = 8192;  // elements of a block
inline constexpr int kUnit = 4;          // of a thread at a time: 16 bytes of each array

/// Of a Table; `Arrays` has n elements.
template <typename Arrays>
struct ArrayEntry {
  Arrays arrays;
  int64_t first_chunk;
  int32_t vector;  // not 0: all arrays are aligned to a unit

  int64_t chunks() const { return (arrays.n + kChunk - 1) / kChunk; }
};

/// body(Count<elements>, first element) for the units of this thread.
template <typename Arrays, typename Body>
QT_DEVICE void for_units_of_chunk(const ArrayEntry<Arrays>& e, const Body& body) {
  const int64_t begin = (blockIdx.x - e.first_chunk) * kChunk;
  const int64_t end = begin + kChunk < e.arrays.n ? begin + kChunk : e.arrays.n;
  int64_t i = begin + threadIdx.x * kUnit;
  if (e.vector != 0)
    for (; i + kUnit <= end; i += kBlockThreads * kUnit) body(Count<kUnit>{}, i);
  // Only the thread with the last, short unit is left; without vectors, all are.
  for (; i < end; i += kBlockThreads * kUnit)
    for (int64_t k = i; k < i + kUnit && k < end; ++k) body(Count<1>{}, k);
}

}  // namespace quintet::QT_GPU
