#pragma once
// Spreads the heads of a batch over the OpenMP threads of this process.

#include <omp.h>

#include <algorithm>

#include "kernels/attention/cpu/problem.h"
#include "kernels/cpu/scratch.h"

namespace quintet::attention {

/// Calls body(b, head, memory) for every head of every sequence, concurrently, with `floats` floats
/// of 64-byte aligned memory for itself. Which thread takes a head does not matter to the result.
/// The body must not throw.
template <typename Body>
void for_each_head(const Problem& p, int64_t floats, const Body& body) {
  const int64_t items = p.batch * p.heads;
  if (items == 0 || p.depth == 0) return;
  // A parallel region costs some 2 us, as much as 2^17 multiplications.
  const int64_t work = items * p.queries * std::max<int64_t>(p.keys, 1) * p.depth;
  const bool alone = omp_in_parallel() != 0 || work < (1 << 17);
  const int threads = alone ? 1 : static_cast<int>(std::min<int64_t>(items, omp_get_max_threads()));
  const int64_t share = (floats + 15) / 16 * 16;
  float* memory = cpu::scratch(cpu::Scratch::kHeads, share * threads);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int64_t item = 0; item < items; ++item)
    body(item / p.heads, item % p.heads, memory + share * omp_get_thread_num());
}

}  // namespace quintet::attention
