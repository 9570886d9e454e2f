#pragma once
// How Adafactor's kernels on a GPU see an array: as lines along its last axis, in groups that share
// the moments along the line.
//
//   const AdafactorShape s = adafactor_shape({{MomentAxis::row, 1024}, {MomentAxis::column,
//   4096}});

#include <cstdint>
#include <span>

namespace quintet {

/// What an axis is to the factored moments (runtime/optim/adafactor/adafactor.h, FactorDim).
enum class MomentAxis : uint8_t { none, batch, row, column };
struct MomentAxisSize {
  MomentAxis kind;
  int64_t size;
  int64_t global = size;  // of the array, where it is sharded and `size` is a block's
};

/// Axes after consecutive ones of one kind have been merged. A line is the last of them. The other
/// axes are: batch axes; `same` axes, of the line's kind; `across` axes, of the other kind.
///   v_along, the moment with the line's axes: element group * length + i
///   v_across, the other: an element a pair of (batch, across index), each along its axes' strides
/// Groups are all places of batch and `same` axes in row-major order, members those of `across`
/// axes.
struct AdafactorShape {
  static constexpr int kMostAxes = 5;
  enum Kind : uint8_t { kBatch = 1, kSame = 2, kAcross = 4 };
  struct Axis {
    Kind kind;
    uint32_t size;
    // One step along the axis, in: lines, groups, elements of v_across, batches.
    uint32_t line, group, across, batch;
  };
  bool factored = false;
  bool along_is_row = false;  // v_along is v_row
  int32_t axes = 0;           // but the last
  Axis axis[kMostAxes]{};
  uint32_t length = 0;                            // of a line
  uint32_t groups = 1, members = 1, batches = 1;  // lines = groups * members
  int64_t elements = 0;  // of the array; where it is cut into lines by force, the last may be short

  constexpr int64_t along_elements() const { return int64_t{groups} * length; }
  constexpr int64_t across_elements() const { return int64_t{batches} * members; }
  /// Elements of the global array that are averaged into one of v_along, of v_across; of one batch.
  double along_count = 1, across_count = 1, batch_elements = 1;
  /// Elements of v_row a batch, likewise.
  constexpr double rows() const { return along_is_row ? across_count : along_count; }
};

/// Of an array with these axes (kinds as decided by factoring_of): both rows and columns, and no
/// `none`, or neither. Throws a Bug for more than 2^32 lines.
AdafactorShape adafactor_shape(std::span<const MomentAxisSize> axes);

}  // namespace quintet
