#include <cstring>

#include "kernels/cpu/addend.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/embed/embed.h"

namespace quintet {
namespace {

// Where a block of table rows lies in the whole table.
struct RowRange {
  int64_t begin, end;
  bool holds(int64_t row) const { return begin <= row && row < end; }
};

RowRange local_rows(const View& table) {
  return {table.origin[0], table.origin[0] + table.size(0)};
}

void check_ids(const int32_t* ids, int64_t count, int64_t vocabulary) {
  for (int64_t i = 0; i < count; ++i)
    QT_CHECK_AS(ExitCode::kData, ids[i] >= 0 && ids[i] < vocabulary,
                "embed: id {} at position {} is outside the vocabulary of {} rows; check that data "
                "and model use the same vocabulary",
                ids[i], i, vocabulary);
}

void add_row(const float* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

}  // namespace

void embed_cpu(Views in, Views out, const Attrs&, Stream) {
  const View &ids_view = in[0], &table_view = in[1], &y_view = out[0];
  const int64_t count = ids_view.elements(), depth = y_view.depth();
  cpu::expect_shape(table_view.rank == 2 && table_view.size(1) == depth && y_view.rows() == count,
                    "embed", "..., ve -> ...e");
  const auto* ids = ids_view.data<const int32_t>();
  const float* table = cpu::f32(table_view, "embed", "table");
  float* y = cpu::f32(y_view, "embed", "y");
  check_ids(ids, count, table_view.global[0]);
  const RowRange rows = local_rows(table_view);
  const size_t row_bytes = static_cast<size_t>(depth) * sizeof(float);
  cpu::parallel_for(count, cpu::row_grain(depth), [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end && row_bytes > 0; ++i)
      if (rows.holds(ids[i]))
        std::memcpy(y + i * depth, table + (ids[i] - rows.begin) * depth, row_bytes);
      else
        std::memset(y + i * depth, 0, row_bytes);
  });
}

void embed_grad_cpu(Views in, Views out, const Attrs&, Stream) {
  const View &ids_view = in[0], &dy_view = in[1], &dtable_view = out[0];
  const int64_t count = ids_view.elements(), depth = dy_view.depth();
  cpu::expect_shape(
      dtable_view.rank == 2 && dtable_view.size(1) == depth && dy_view.rows() == count,
      "embed_grad", "..., ...e -> ve");
  const auto* ids = ids_view.data<const int32_t>();
  const float* dy = cpu::f32(dy_view, "embed_grad", "dy");
  float* dtable = cpu::f32(dtable_view, "embed_grad", "dtable");
  check_ids(ids, count, dtable_view.global[0]);
  const RowRange rows = local_rows(dtable_view);
  if (cpu::copy_addend(in, 2, out, 0) == 0)
    cpu::parallel_for(dtable_view.size(0), cpu::row_grain(depth), [=](int64_t begin, int64_t end) {
      std::fill(dtable + begin * depth, dtable + end * depth, 0.0F);
    });
  // Threads share columns out, not rows: word frequencies would load them unevenly. Units of 16
  // columns (a cache line) keep threads off each other's lines.
  constexpr int64_t kUnit = 16;
  const int64_t units = (depth + kUnit - 1) / kUnit;
  const int64_t grain = cpu::kGrainElements / std::max<int64_t>(1, kUnit * count);
  cpu::parallel_for(units, grain, [=](int64_t begin, int64_t end) {
    const int64_t first = begin * kUnit, last = std::min(end * kUnit, depth);
    for (int64_t i = 0; i < count; ++i)
      if (rows.holds(ids[i]))
        add_row(dy + i * depth + first, dtable + (ids[i] - rows.begin) * depth + first,
                last - first);
  });
}

}  // namespace quintet
