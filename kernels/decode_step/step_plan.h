#pragma once
// How a step is cut up, which host and device work out alike.

#include "kernels/decode_step/decode_step.h"

namespace quintet {

inline constexpr int kStepThreads = 384, kStepWarps = kStepThreads / 32;
inline constexpr int kMostRowsAtOnce = 48;   // of weights, whose sums meet
inline constexpr int kMostLogitGroups = 48;  // of 16 bytes, that a block has at once
inline constexpr int kPasses = 2;            // loads of 16 bytes that a thread waits for together

/// A matrix's part that one block multiplies with: rows of groups of 16 bytes, of one or several segments
/// side by side.
struct StepPiece {
  /// Groups, and what divides by them.
  struct Width {
    int32_t groups = 0;
    uint32_t inverse = 0;

    constexpr Width() = default;
    constexpr explicit Width(int32_t n)
        : groups(n),
          inverse(((1u << 20) + static_cast<uint32_t>(n) - 1) / static_cast<uint32_t>(n)) {}
    /// i / groups for i up to kStepThreads; groups are as many at most.
    constexpr int32_t times_in(int32_t i) const {
      return static_cast<int32_t>(static_cast<uint32_t>(i) * inverse >> 20);
    }
    /// Rows that the block has at once.
    constexpr int32_t row_step() const {
      const int32_t rows = times_in(kStepThreads);
      return rows < kMostRowsAtOnce ? rows : kMostRowsAtOnce;
    }
  };
  const void* from = nullptr;
  int64_t pitch = 0, segment = 0;  // elements from row to row, from segment to segment
  Width width;
  int32_t segment_groups = 0, rows = 0;
};

struct StepPlan {
  int32_t cluster = 0, clusters = 0;  // blocks of one, and how many there are
  int32_t slice = 0;                  // elements of x that a block has
  int32_t hidden = 0;     // units of the MLP that a cluster has; the last one may have fewer
  int32_t exchanged = 0;  // floats that blocks of a cluster give each other at once, of a row
  int32_t portions = 0;   // of weights, of kPasses loads, that are under way

  /// Floats of shared memory behind the weights, for `rows` rows; `lane`: elements of 16 bytes.
  struct Layout {
    int32_t partial, exchange, x, staged, qkv, attended, hidden, own, squares, joined, end;
  };
  constexpr Layout layout(int32_t rows, int32_t lane, int32_t head_dim, bool has_logits) const {
    Layout it{};
    int32_t at = 0;
    const auto take = [&](int32_t floats) {
      const int32_t begin = at;
      at += (floats + 3) / 4 * 4;
      return begin;
    };
    it.partial = take(kStepThreads * lane * rows + 8 * kMostRowsAtOnce);
    it.exchange = take(2 * cluster * rows * exchanged);
    it.x = take(rows * slice);
    it.staged = take(rows * slice);
    it.qkv = take(rows * 3 * head_dim);
    it.attended = take(rows * head_dim);
    it.hidden = take(rows * hidden);
    it.own = take(rows * slice);
    it.squares = take(2 * rows);  // and factors
    const int32_t joined = rows * kStepWarps * (head_dim + 2), whole = rows * slice * cluster;
    it.joined = take(has_logits && whole > joined ? whole : joined);
    it.end = at;
    return it;
  }
};

}  // namespace quintet
