#pragma once
// jestimator's Amos with states that are smaller than the parameter (shape_fn): a cell of them belongs to all numbers of
// the parameter that differ along reduced axes alone. Two passes, as ranks add up the squares between them.
//
//   sum_amos_cells(arrays);                 // on a GPU kernels().sum_amos_cells
//   update_amos_cells(arrays, rule);        // gradients become the update

#include <array>
#include <span>

#include "kernels/optimizers/float_pointer.h"
#include "kernels/optimizers/rules.h"
#include "runtime/base/view.h"

namespace quintet {

/// Of one parameter, this rank's block.
struct AmosCells {
  FloatPointer gradient;
  const float* param;
  float *v, *b;   // of each cell
  double* sums;   // of each cell: squares of its gradients, over all ranks between the passes
  float* decay;   // of each cell: what the parameter is multiplied by, and
  float* rate;    // the gradient
  float eta = 1;  // size that numbers of the parameter are expected to have
  int rank = 0;
  std::array<int64_t, kMaxRank> sizes{};    // of the block
  std::array<int64_t, kMaxRank> strides{};  // of the cells; 0: the axis is reduced
  int64_t n = 0, cells = 0,
          members = 1;  // elements of the block; members: of a cell, in all ranks' blocks
  int32_t* not_finite = nullptr;

  /// Of element i.
  QT_RULE int64_t cell_of(int64_t i) const {
    int64_t cell = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      cell += i % sizes[a] * strides[a];
      i /= sizes[a];
    }
    return cell;
  }
  /// The element that is the `member`-th of a cell in this block.
  QT_RULE int64_t element_of(int64_t cell, int64_t member) const {
    int64_t element = 0, stride = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      const bool reduced = strides[a] == 0;
      int64_t& from = reduced ? member : cell;
      element += from % sizes[a] * stride;
      from /= sizes[a];
      stride *= sizes[a];
    }
    return element;
  }
  /// From the sums.
  QT_RULE void update_cell(const rules::Amos& rule, int64_t cell) const {
    const auto mean = static_cast<float>(sums[cell] / static_cast<double>(members));
    const rules::Amos::Step step = rule.step(mean, eta, v[cell], b[cell]);
    decay[cell] = step.slower * step.decay;
    rate[cell] = step.slower * step.rate;
  }
};

namespace cpu {

void sum_amos_cells(std::span<const AmosCells> arrays);
void update_amos_cells(std::span<const AmosCells> arrays, const rules::Amos& rule);

}  // namespace cpu
}  // namespace quintet
