#pragma once
// How Adafactor factors a parameter: the decision by rule or by size, the shapes of its moments,
// and the lines in which the kernels walk the array.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/optimizers/adafactor.h"
#include "runtime/optim/adafactor/adafactor.h"

namespace quintet {

/// What each axis of a parameter is, after all of T5X's exceptions. Not factored: no axis is kRow
/// or kColumn, and kBatch axes still have clipping and scale of their own.
struct Factoring {
  bool factored = false;
  std::vector<FactorDim> dims;
};
/// Decides for one parameter. A matrix without BATCH axis goes by size, whatever its rule; so does
/// a parameter of rank 2 or less without rule; a matrix that has more axes in T5X goes by its rule, which factors
/// it whatever its size. Throws a usage error naming the parameter when a
/// rule does not fit its rank, an axis has no rule, or rank 3 and more has none.
Factoring factoring_of(const AdafactorOptions& options, const std::string& name, const Axes& axes,
                       const std::vector<int64_t>& shape, bool has_more_axes_in_t5x = false);

/// Lines of an array and how its moments are laid out.
struct FactoredLayout {
  std::vector<cpu::AdafactorLine> lines;
  /// Ranges of lines that one thread takes; ends of the ranges, in order.
  std::vector<size_t> chunk_ends;
  bool along_is_row = false;  // which moment varies along a line; the other is "across"
  std::vector<int64_t> row_shape,
      column_shape;                           // v_row: without COLUMN axes; v_col: without ROW axes
  std::vector<size_t> row_dims, column_dims;  // the axes they have
  std::vector<int32_t> row_batch;  // batch of each element of v_row; empty if there is one batch
  int64_t batches = 1;
  // Of the global array where it is sharded:
  double row_count = 1, column_count = 1;  // elements averaged into one of v_row, of v_col
  double rows = 1;                         // elements of v_row a batch
  double batch_elements = 1;               // elements of the array a batch
};
/// `shape`: of the block that is here; `all`: of the global array, whose elements the counts are of.
/// `lines`: also those in which kernels walk the array, and the batches of rows.
FactoredLayout layout_of(const Factoring& factoring, const std::vector<int64_t>& shape,
                         const std::vector<int64_t>& all, bool lines = true);

}  // namespace quintet
