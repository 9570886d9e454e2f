#pragma once
// Splits work over the OpenMP threads of this process.
//
//   parallel_for(rows, 1 << 14 / depth, [&](int64_t begin, int64_t end) { ... });
//
// The split depends on the number of items and threads alone, so results that depend on it (sums of
// per-thread parts, added in thread order) are the same from run to run. Bodies must not throw.

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace quintet::cpu {

/// Parts that parallel_for makes: at most one a thread, each of at least `grain` items.
inline int part_count(int64_t items, int64_t grain) {
  if (omp_in_parallel() != 0) return 1;
  const int64_t wanted = items / std::max<int64_t>(grain, 1);
  return static_cast<int>(std::clamp<int64_t>(wanted, 1, omp_get_max_threads()));
}

/// First item of part `part` of `parts`.
inline int64_t part_begin(int64_t items, int part, int parts) { return items * part / parts; }

/// Calls body(begin, end, part) for `parts` consecutive ranges, concurrently.
template <typename Body>
void parallel_parts(int64_t items, int parts, const Body& body) {
  if (parts <= 1) {
    if (items > 0) body(int64_t{0}, items, 0);
    return;
  }
#pragma omp parallel for num_threads(parts) schedule(static, 1)
  for (int part = 0; part < parts; ++part)
    body(part_begin(items, part, parts), part_begin(items, part + 1, parts), part);
}

/// Calls body(begin, end) for ranges that cover [0, items); small work stays on this thread.
template <typename Body>
void parallel_for(int64_t items, int64_t grain, const Body& body) {
  parallel_parts(items, part_count(items, grain),
                 [&body](int64_t begin, int64_t end, int) { body(begin, end); });
}

/// Elements a thread should have before starting another pays (a parallel region costs about 2 us,
/// an element of a simple loop 0.2 ns, on Emerald Rapids).
inline constexpr int64_t kGrainElements = 1 << 14;

/// Rows of `depth` elements that make up a grain.
inline int64_t row_grain(int64_t depth) {
  return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, depth));
}

}  // namespace quintet::cpu
