#pragma once
// Products with weights that are packed once and used many times by few rows, as in generation: y =
// x w for x [rows, k] and w [k, n]. One pass over the weights, in memory order, serves all rows;
// with up to 14 rows (AVX-512) it runs at the speed of memory. Larger row counts are fine too
// (prefill).
//
//   HugeArena arena;
//   const PackedMatrix w = PackedMatrix::pack(kernel, k, n, arena);          // [k, n] row-major
//   PackedRows x;                                                           // a thread's own copy
//   x.pack(activations, rows, k);
//   multiply(x, w, w.share(part, parts), [&](const Tile& tile) { store(tile, y, n); });
//
// Layout: panels of `panel_width()` columns, [panels][k][width] float32, the last filled up with
// zeros; rows are regrouped as [group][k][rows of the group], so that both are read in order. Knows
// nothing of threads: a caller splits panels with share(). Accumulates in float32. Highway,
// run-time dispatch.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/mlp/mlp.h"  // defines: Activation

namespace quintet {

/// Columns of a panel: two vectors of the best instruction set of this machine.
int64_t panel_width();
/// Rows that one group holds at most: as many as registers allow.
int64_t group_rows();

/// A half-open range of panels.
struct PanelRange {
  int64_t begin = 0, end = 0;
};

/// Zero-filled memory on huge pages where the system grants them: streaming through 4 KiB pages
/// costs a quarter of the bandwidth in page walks (17 against 14 GB/s on a 2-core Emerald Rapids
/// machine). Small blocks share pages. Blocks live as long as anyone holds one of the same chunk.
class HugeArena {
 public:
  /// Aligned to 256 bytes; throws kEnvironment when memory is short.
  std::shared_ptr<float> allocate(int64_t floats);

 private:
  std::shared_ptr<float> chunk_;
  int64_t used_ = 0, size_ = 0;  // floats of the chunk
};

class PackedMatrix {
 public:
  PackedMatrix() = default;
  /// Room for a [k, n] matrix, to be filled by set_columns.
  PackedMatrix(int64_t k, int64_t n, HugeArena& arena);
  static PackedMatrix pack(const float* w, int64_t k, int64_t n, HugeArena& arena);
  /// w is [n, k]: y = x w^T.
  static PackedMatrix pack_transposed(const float* w, int64_t n, int64_t k, HugeArena& arena);

  /// Copies w [k, columns], row-major with the given stride, to columns [first, first + columns).
  void set_columns(int64_t first, const float* w, int64_t columns, int64_t stride);

  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  int64_t panels() const { return panels_; }
  const float* panel(int64_t i) const { return data_.get() + i * k_ * panel_width(); }
  int64_t bytes() const { return panels_ * k_ * panel_width() * 4; }
  /// The panels of part `part` of `parts`, in multiples of `unit` panels.
  PanelRange share(int64_t part, int64_t parts, int64_t unit = 1) const;

 private:
  int64_t k_ = 0, n_ = 0, panels_ = 0;
  std::shared_ptr<float> data_;
};

/// Rows regrouped for multiply. Keeps its memory between uses.
class PackedRows {
 public:
  /// x: [rows, k], rows `stride` floats apart.
  void pack(const float* x, int64_t rows, int64_t k, int64_t stride);
  void pack(const float* x, int64_t rows, int64_t k) { pack(x, rows, k, k); }
  /// The same with RMS norm on the way: x / sqrt(mean(x^2) + eps) * gain (arXiv:1910.07467).
  void pack_normalized(const float* x, int64_t rows, int64_t k, const float* gain, float eps);

  /// Writes the packed values back in order, [rows, k].
  void unpack(float* out) const;

  int64_t rows() const { return rows_; }
  int64_t k() const { return k_; }
  int64_t groups() const { return groups_; }
  int64_t first_row(int64_t group) const { return group * rows_ / groups_; }
  const float* group(int64_t g) const { return data_.data() + first_row(g) * k_; }

 private:
  void resize(int64_t rows, int64_t k);
  std::vector<float> data_, row_;
  int64_t rows_ = 0, k_ = 0, groups_ = 0;
};

/// Part of the result: rows [row, row + rows) of columns [column, column + columns), of the matrix
/// of panel `panel`; values are [rows][panel_width()].
struct Tile {
  int64_t panel = 0, row = 0, rows = 0, column = 0, columns = 0;
  const float* values = nullptr;
};

/// Calls `done` for each tile of x w in the given panels. `next`: memory read right after (the same
/// thread's next panels), whose first bytes are fetched while the last panel is computed, or null.
void multiply(const PackedRows& x, const PackedMatrix& w, PanelRange panels,
              const std::function<void(const Tile&)>& done, const float* next = nullptr);

/// What usually becomes of a tile.
void store_tile(const Tile& tile, float* y, int64_t stride);                // y = tile
void add_tile(const Tile& tile, float* y, int64_t stride);                  // y += tile
void scale_tile(const Tile& tile, float* y, int64_t stride, float factor);  // y = factor * tile

/// y = activation(tile), and y = y * activation(tile).
void activate_tile(const Tile& tile, Activation activation, float* y, int64_t stride);
void multiply_activated_tile(const Tile& tile, Activation activation, float* y, int64_t stride);

}  // namespace quintet
