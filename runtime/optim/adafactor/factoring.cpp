#include "runtime/optim/adafactor/factoring.h"

#include <algorithm>
#include <numeric>

#include "runtime/base/check.h"

namespace quintet {
namespace {

bool contains(const std::vector<FactorDim>& dims, FactorDim dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

std::string names(const Axes& axes) {
  std::string text;
  for (const Axis& axis : axes) text += (text.empty() ? "" : ", ") + axis.name;
  return "[" + text + "]";
}

/// The rule of a parameter by its logical axes. With ROW but no COLUMN, or the reverse, only BATCH
/// axes count.
std::vector<FactorDim> rule_from_axes(const FactorRules& rules, const std::string& name,
                                      const Axes& axes) {
  std::vector<FactorDim> dims;
  for (const Axis& axis : axes) {
    const auto rule = rules.find(axis.name);
    QT_CHECK(
        rule != rules.end(),
        "Adafactor: parameter {} has the logical axis '{}', for which logical_factor_rules has no "
        "entry; add one (ROW, COLUMN, BATCH or NONE)",
        name, axis.name);
    dims.push_back(rule->second);
  }
  const bool row = contains(dims, FactorDim::kRow), column = contains(dims, FactorDim::kColumn);
  QT_CHECK(!(row && column && contains(dims, FactorDim::kNone)),
           "Adafactor: the factor rules give parameter {} {} ROW, COLUMN and NONE axes; incomplete "
           "factoring is not defined",
           name, names(axes));
  if (!row || !column)
    for (FactorDim& dim : dims)
      if (dim != FactorDim::kBatch) dim = FactorDim::kNone;
  return dims;
}

/// By size: the largest axis is COLUMN, the next ROW (of equal ones the last is the largest), if
/// that one is large enough.
Factoring by_size(const std::vector<int64_t>& shape, int64_t min_dim_size_to_factor) {
  Factoring result{false, std::vector<FactorDim>(shape.size(), FactorDim::kNone)};
  if (shape.size() < 2) return result;
  std::vector<size_t> order(shape.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return shape[a] < shape[b]; });
  const size_t row = order[order.size() - 2], column = order.back();
  if (shape[row] < min_dim_size_to_factor) return result;
  result.factored = true;
  result.dims[row] = FactorDim::kRow;
  result.dims[column] = FactorDim::kColumn;
  return result;
}

/// Consecutive axes of one kind, as one.
struct MergedAxis {
  FactorDim dim;
  int64_t size;
  int64_t row_stride = 0, column_stride = 0, batch_stride = 0;
};

std::vector<MergedAxis> merge(const Factoring& factoring, const std::vector<int64_t>& shape) {
  std::vector<MergedAxis> merged;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!merged.empty() && merged.back().dim == factoring.dims[i])
      merged.back().size *= shape[i];
    else
      merged.push_back({factoring.dims[i], shape[i]});
  }
  // A line must not cross batches, so that one number can scale it.
  if (merged.empty() || merged.back().dim == FactorDim::kBatch)
    merged.push_back({factoring.factored ? FactorDim::kRow : FactorDim::kNone, 1});
  int64_t row = 1, column = 1, batch = 1;
  for (auto axis = merged.rbegin(); axis != merged.rend(); ++axis) {
    if (axis->dim != FactorDim::kColumn) axis->row_stride = row, row *= axis->size;
    if (axis->dim != FactorDim::kRow) axis->column_stride = column, column *= axis->size;
    if (axis->dim == FactorDim::kBatch) axis->batch_stride = batch, batch *= axis->size;
  }
  return merged;
}

constexpr int64_t kLongestLine = 1 << 13;    // elements; longer lines are cut
constexpr int64_t kChunkElements = 1 << 16;  // what one thread takes at a time

/// Appends the line that starts at `begin`, in pieces of at most kLongestLine.
void add_line(std::vector<cpu::AdafactorLine>& lines, const cpu::AdafactorLine& line) {
  for (int64_t done = 0; done < line.length; done += kLongestLine)
    lines.push_back({line.begin + done, std::min(kLongestLine, line.length - done),
                     line.along + done, line.across, line.batch});
}

void cut_into_lines(const std::vector<MergedAxis>& merged, FactoredLayout& layout) {
  const MergedAxis& last = merged.back();
  layout.along_is_row = last.dim == FactorDim::kRow;
  int64_t count = 1;
  for (size_t i = 0; i + 1 < merged.size(); ++i) count *= merged[i].size;
  int64_t in_chunk = 0;
  for (int64_t l = 0; l < count; ++l) {
    int64_t row = 0, column = 0, batch = 0, rest = l;
    for (size_t i = merged.size() - 1; i-- > 0; rest /= merged[i].size) {
      const int64_t index = rest % merged[i].size;
      row += index * merged[i].row_stride;
      column += index * merged[i].column_stride;
      batch += index * merged[i].batch_stride;
    }
    const size_t before = layout.lines.size();
    add_line(layout.lines, {l * last.size, last.size, layout.along_is_row ? row : column,
                            layout.along_is_row ? column : row, batch});
    for (size_t i = before; i < layout.lines.size(); ++i) {
      in_chunk += layout.lines[i].length;
      if (in_chunk < kChunkElements) continue;
      layout.chunk_ends.push_back(i + 1);
      in_chunk = 0;
    }
  }
  if (in_chunk > 0) layout.chunk_ends.push_back(layout.lines.size());
}

/// The batch of every element of v_row.
std::vector<int32_t> batches_of_rows(const std::vector<MergedAxis>& merged, int64_t elements) {
  std::vector<int32_t> batches(static_cast<size_t>(elements));
  for (int64_t e = 0; e < elements; ++e) {
    int64_t batch = 0;
    for (const MergedAxis& axis : merged)
      if (axis.dim == FactorDim::kBatch)
        batch += e / axis.row_stride % axis.size * axis.batch_stride;
    batches[static_cast<size_t>(e)] = static_cast<int32_t>(batch);
  }
  return batches;
}

}  // namespace

Factoring factoring_of(const AdafactorOptions& options, const std::string& name, const Axes& axes,
                       const std::vector<int64_t>& shape, bool has_more_axes_in_t5x) {
  if (!options.factored) return {false, std::vector<FactorDim>(shape.size(), FactorDim::kNone)};
  std::vector<FactorDim> dims{FactorDim::kHeuristic};
  if (options.logical_factor_rules)
    dims = rule_from_axes(*options.logical_factor_rules, name, axes);
  else if (options.factor_map)
    dims = options.factor_map->at(name);
  if (dims == std::vector{FactorDim::kHeuristic}) {
    QT_CHECK(shape.size() <= 2,
             "Adafactor: parameter {} {} has rank {}; ranks above 2 need an explicit factor rule "
             "(logical_factor_rules or factor_map)",
             name, names(axes), shape.size());
    return by_size(shape, options.min_dim_size_to_factor);
  }
  QT_CHECK(
      dims.size() == shape.size(),
      "Adafactor: the factor rule of parameter {} {} has {} entries, but the parameter has rank {}",
      name, names(axes), dims.size(), shape.size());
  const bool row = contains(dims, FactorDim::kRow), column = contains(dims, FactorDim::kColumn);
  if (shape.size() <= 2 && !contains(dims, FactorDim::kBatch))
    return by_size(shape,
                   has_more_axes_in_t5x && row && column ? 0 : options.min_dim_size_to_factor);
  QT_CHECK(
      row == column && !(row && contains(dims, FactorDim::kNone)),
      "Adafactor: the factor rule of parameter {} {} must have both ROW and COLUMN axes and no "
      "NONE, or neither",
      name, names(axes));
  return {row, dims};
}

FactoredLayout layout_of(const Factoring& factoring, const std::vector<int64_t>& shape,
                         const std::vector<int64_t>& all, bool lines) {
  FactoredLayout layout;
  int64_t rows_here = 1;  // elements of v_row a batch
  for (size_t i = 0; i < shape.size(); ++i) {
    const FactorDim dim = factoring.dims[i];
    const auto size = static_cast<double>(all[i]);
    if (dim != FactorDim::kColumn) {
      layout.row_shape.push_back(shape[i]);
      layout.row_dims.push_back(i);
    }
    if (dim != FactorDim::kRow) {
      layout.column_shape.push_back(shape[i]);
      layout.column_dims.push_back(i);
    }
    if (dim == FactorDim::kBatch) {
      layout.batches *= shape[i];
      continue;
    }
    layout.batch_elements *= size;
    if (dim == FactorDim::kColumn) layout.row_count *= size;
    if (dim == FactorDim::kRow)
      layout.column_count *= size, layout.rows *= size, rows_here *= shape[i];
  }
  if (!lines) return layout;
  const std::vector<MergedAxis> merged = merge(factoring, shape);
  cut_into_lines(merged, layout);
  if (factoring.factored && layout.batches > 1)
    layout.row_batch = batches_of_rows(merged, rows_here * layout.batches);
  return layout;
}

}  // namespace quintet
