#include "kernels/optimizers/adafactor_shape.h"

#include <algorithm>
#include <vector>

#include "kernels/optimizers/adafactor.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

// An unfactored array without batches is cut into lines of this length, whatever its axes.
constexpr int64_t kLine = 1024;

std::vector<MomentAxisSize> merged(std::span<const MomentAxisSize> axes, bool factored) {
  std::vector<MomentAxisSize> merged;
  for (const MomentAxisSize& axis : axes) {
    if (!merged.empty() && merged.back().kind == axis.kind)
      merged.back().size *= axis.size, merged.back().global *= axis.global;
    else
      merged.push_back(axis);
  }
  // A line must not cross batches, so that one number can scale it.
  if (merged.empty() || merged.back().kind == MomentAxis::batch)
    merged.push_back({factored ? MomentAxis::row : MomentAxis::none, 1});
  return merged;
}

uint32_t narrow(int64_t size) {
  QT_ASSERT(size >= 0 && size < int64_t{1} << 32);
  return static_cast<uint32_t>(size);
}

}  // namespace

AdafactorShape adafactor_shape(std::span<const MomentAxisSize> axes) {
  AdafactorShape shape;
  shape.elements = 1;
  for (const MomentAxisSize& axis : axes) {
    shape.elements *= axis.size;
    if (axis.kind == MomentAxis::row || axis.kind == MomentAxis::column) shape.factored = true;
  }
  const std::vector<MomentAxisSize> all = merged(axes, shape.factored);
  const MomentAxisSize& last = all.back();
  for (const MomentAxisSize& axis : all) {
    if (axis.kind == MomentAxis::batch) continue;
    (axis.kind == last.kind ? shape.across_count : shape.along_count) *=
        static_cast<double>(axis.global);
    shape.batch_elements *= static_cast<double>(axis.global);
  }
  if (all.size() == 1 && !shape.factored) {
    shape.length = narrow(std::min(kLine, shape.elements));
    shape.members = narrow(shape.length == 0 ? 0 : (shape.elements + kLine - 1) / kLine);
    shape.axes = 1;
    shape.axis[0] = {AdafactorShape::kAcross, shape.members, 1, 0, 1, 0};
    return shape;
  }
  QT_ASSERT(all.size() <= AdafactorShape::kMostAxes + 1);
  shape.along_is_row = last.kind == MomentAxis::row;
  shape.length = narrow(last.size);
  shape.axes = static_cast<int32_t>(all.size()) - 1;
  int64_t lines = 1, groups = 1, across = 1, batches = 1, members = 1;
  for (int i = shape.axes - 1; i >= 0; --i) {
    const MomentAxisSize& from = all[static_cast<size_t>(i)];
    const bool is_batch = from.kind == MomentAxis::batch;
    // Unfactored arrays have batch axes and others.
    const bool is_same = !is_batch && shape.factored && from.kind == last.kind;
    AdafactorShape::Axis& axis = shape.axis[i];
    axis.kind = is_batch  ? AdafactorShape::kBatch
                : is_same ? AdafactorShape::kSame
                          : AdafactorShape::kAcross;
    axis.size = narrow(from.size);
    axis.line = narrow(lines);
    lines *= from.size;
    if (is_batch || is_same) axis.group = narrow(groups), groups *= from.size;
    if (!is_same) axis.across = narrow(across), across *= from.size;
    if (is_batch) axis.batch = narrow(batches), batches *= from.size;
    if (axis.kind == AdafactorShape::kAcross) members *= from.size;
  }
  shape.groups = narrow(groups);
  shape.members = narrow(members);
  shape.batches = narrow(batches);
  narrow(lines);
  return shape;
}

int64_t adafactor_window_tiles(std::span<const AdafactorShape> shapes, int64_t window) {
  int64_t all = 0, largest = 0;
  for (const AdafactorShape& shape : shapes) {
    all += adafactor_tiles(shape);
    largest = std::max(largest, adafactor_matrix_tiles(shape));
  }
  return std::max(std::min(all, window), largest);
}

int64_t adafactor_scratch_bytes(std::span<const AdafactorShape> shapes, bool sharded,
                                int64_t window) {
  int64_t all = 0;
  for (const AdafactorShape& shape : shapes) all += adafactor_tiles(shape);
  const int64_t tiles = sharded ? all : kAdafactorWindows * adafactor_window_tiles(shapes, window);
  return tiles * kAdafactorTileBytes;
}

}  // namespace quintet
