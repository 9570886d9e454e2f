#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/optimizers/amos_cells.h"

namespace quintet::cpu {
namespace {

/// body(array) for each, in parallel: a cell's numbers are added in their order by one thread.
template <typename Body>
void for_each_array(std::span<const AmosCells> arrays, const Body& body) {
  const auto count = static_cast<int64_t>(arrays.size());
#pragma omp parallel for schedule(dynamic, 1) if (count > 1)
  for (int64_t i = 0; i < count; ++i) body(arrays[static_cast<size_t>(i)]);
}

}  // namespace

void sum_amos_cells(std::span<const AmosCells> arrays) {
  for_each_array(arrays, [](const AmosCells& a) {
    std::fill_n(a.sums, a.cells, 0.0);
    for (int64_t i = 0; i < a.n; ++i) {
      const auto g = static_cast<double>((a.gradient + i).get());
      a.sums[a.cell_of(i)] += g * g;
    }
  });
}

void update_amos_cells(std::span<const AmosCells> arrays, const rules::Amos& rule) {
  for_each_array(arrays, [&](const AmosCells& a) {
    bool finite = true;
    for (int64_t cell = 0; cell < a.cells; ++cell) {
      a.update_cell(rule, cell);
      finite = finite && std::isfinite(a.v[cell]) && std::isfinite(a.b[cell]);
    }
    for (int64_t i = 0; i < a.n; ++i) {
      const int64_t cell = a.cell_of(i);
      const FloatPointer g = a.gradient + i;
      g.set(a.decay[cell] * a.param[i] - a.rate[cell] * g.get());
    }
    if (!finite && a.not_finite != nullptr) std::atomic_ref(*a.not_finite).store(1);
  });
}

}  // namespace quintet::cpu
