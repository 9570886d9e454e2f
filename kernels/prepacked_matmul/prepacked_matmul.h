#pragma once
// Products with weights that are packed once and used many times by few rows, as in generation: y =
// x w for x [rows, k] and w [k, n]. One pass over the weights, in memory order, serves all rows;
// with up to 14 rows (AVX-512) it runs at the speed of memory. Larger row counts are fine too
// (prefill).
//
//   HugeArena arena;
//   const PackedMatrix w = PackedMatrix::pack(kernel, k, n, arena);          // [k, n] row-major
//   PackedRows x;                                                           // a thread's own
//   x.pack(activations, rows, k);
//   multiply(x, w, w.share(part, parts), [&](const Tile& tile) { store(tile, y, n); });
//
// Layout: panels of `panel_width()` columns, the last filled up with zeros; rows are regrouped as
// [group][k][rows of the group], so that both are read in order, or as AMX's tiles (row_pieces.h).
// Starts no threads: a caller splits panels with share(), or lets threads take them from one another
// (panel_source.h). Accumulates in float32, int8_dynamic and pieces of rows with int8 in int32. Highway,
// run-time dispatch.
//
// Weights in fewer bits are read at the same bytes a second (README.md):
//   bf16          rounded; in pairs of k, [panels][k/2][width][2]
//   int8          a scale a column, the largest magnitude is 127; quads of k, [panels][k/4][width][4]
//   int8_dynamic  the same, and rows rounded to 8 bits with a scale each when they are multiplied
//   fp8           float8 (runtime/base/float8.h), a scale a column, the largest magnitude is 448

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/mlp/mlp.h"  // defines: Activation
#include "kernels/prepacked_matmul/panel_source.h"
#include "runtime/base/dtype.h"
#include "runtime/base/float8.h"

namespace quintet {

class FetchQueue;
class RowPieces;
struct TileInput;

enum class WeightType { f32, bf16, int8, int8_dynamic, fp8 };
/// "f32", "bf16", "int8", "int8_dynamic", "fp8"; throws a usage error.
WeightType weight_type_from_name(const std::string& name);
const char* name_of(WeightType type);

/// Columns of a panel: two vectors of the best instruction set of this machine.
int64_t panel_width();

/// What is read right after a product: the same thread's first panels of the next one.
struct NextPanels {
  const std::byte* begin = nullptr;
  int64_t bytes = 0;
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

/// Sums of more products of two numbers in 8 bits do not fit 32 bits.
constexpr int64_t kMostInt8Depth = ((int64_t{1} << 31) - 1) / (128 * 128);
/// k is filled up with zeros to whole quads.
constexpr int64_t padded_k(int64_t k) { return (k + 3) / 4 * 4; }
constexpr int64_t weight_bytes(WeightType type) {
  return type == WeightType::f32 ? 4 : type == WeightType::bf16 ? 2 : 1;
}

/// A matrix [k, n] as its owner holds it, element (i, j) at values[i * row_stride + j * column_stride]:
/// float32, bfloat16, or with a scale a column int8 or (uint8) float8's bits. What is quantized already
/// is packed as it is.
struct StoredMatrix {
  const void* values = nullptr;
  DType dtype = DType::f32;
  const float* scales = nullptr;  // of the columns of what is in a byte
  int64_t row_stride = 0, column_stride = 1;

  static StoredMatrix row_major(const float* w, int64_t n) {
    return {w, DType::f32, nullptr, n, 1};
  }
  StoredMatrix transposed() const { return {values, dtype, scales, column_stride, row_stride}; }
  /// The part that begins at a row and a column.
  StoredMatrix from(int64_t row, int64_t column) const {
    const int64_t elements = row * row_stride + column * column_stride;
    return {static_cast<const std::byte*>(values) + elements * size_of(dtype), dtype,
            scales == nullptr ? nullptr : scales + column, row_stride, column_stride};
  }
};

/// Which panels consecutive columns fill: every `step`-th from number `first` on.
struct PanelOrder {
  int64_t first = 0, step = 1;
};

/// Rounds w [k], its elements `stride` apart, to 8 bits at out [k], as far apart: the largest
/// magnitude is 127. Returns the scale.
float quantize_column(const float* w, int64_t k, int64_t stride, int8_t* out);
/// The same to float8: the largest magnitude is 448.
float quantize_column(const float* w, int64_t k, int64_t stride, float8* out);

class PackedMatrix {
 public:
  PackedMatrix() = default;
  /// Room for a [k, n] matrix, to be filled by set_columns. Throws a usage error for int8_dynamic deeper than
  /// kMostInt8Depth.
  PackedMatrix(int64_t k, int64_t n, HugeArena& arena, WeightType type = WeightType::f32);
  static PackedMatrix pack(const float* w, int64_t k, int64_t n, HugeArena& arena,
                           WeightType type = WeightType::f32);
  /// w is [n, k]: y = x w^T.
  static PackedMatrix pack_transposed(const float* w, int64_t n, int64_t k, HugeArena& arena,
                                      WeightType type = WeightType::f32);

  /// Copies w [k, columns] to columns [first, first + columns) of the panels in this order.
  void set_columns(int64_t first, const StoredMatrix& w, int64_t columns, PanelOrder order = {});
  /// The weights of a column as they are used, [k].
  void column(int64_t index, float* out) const;

  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  int64_t panels() const { return panels_; }
  WeightType type() const { return type_; }
  const std::byte* panel(int64_t i) const { return data_.get() + i * panel_bytes(); }
  int64_t panel_bytes() const { return padded_k(k_) * panel_width() * weight_bytes(type_); }
  int64_t bytes() const { return panels_ * panel_bytes(); }
  /// Of what is in a byte the scale of each column of panel i and those after it, and of int8_dynamic 128 times the sum of
  /// its weights; else null.
  const float* scales(int64_t i) const { return of_panel(scales_, i); }
  const int32_t* sums(int64_t i) const { return of_panel(sums_, i); }
  /// The panels of part `part` of `parts`, in multiples of `unit` panels.
  PanelRange share(int64_t part, int64_t parts, int64_t unit = 1) const;
  /// Those of the panels that so many rows go through first; none of an empty range.
  NextPanels first_panels(PanelRange panels, int64_t rows) const;

 private:
  /// Columns [at, at + columns) of one panel.
  void set_in_panel(int64_t panel, int64_t at, const StoredMatrix& w, int64_t columns);
  template <typename Rounded>
  void quantize_in_panel(int64_t panel, int64_t at, const StoredMatrix& w, int64_t columns);
  template <class Value>
  static const Value* of_panel(const std::vector<Value>& columns, int64_t i) {
    return columns.empty() ? nullptr : columns.data() + i * panel_width();
  }
  int64_t k_ = 0, n_ = 0, panels_ = 0;
  WeightType type_ = WeightType::f32;
  std::shared_ptr<std::byte> data_;
  std::vector<float> scales_;
  std::vector<int32_t> sums_;
};

/// Rows that go through a panel together.
struct RowGroups {
  int64_t rows = 0, count = 0;
  int64_t first(int64_t g) const { return g * rows / count; }
  int64_t most() const { return (rows + count - 1) / count; }
};
/// Of rows of depth k that meet weights of this type.
RowGroups row_groups(int64_t rows, int64_t k, WeightType weights);

/// Rows for the products of one thread, in the forms that kernels read, which are made when a product first needs them.
/// Keeps its memory between uses.
class PackedRows {
 public:
  PackedRows();
  ~PackedRows();
  /// x: [rows, k], rows `stride` floats apart; stays as it is while it is multiplied.
  void pack(const float* x, int64_t rows, int64_t k, int64_t stride) { set(x, rows, k, stride); }
  void pack(const float* x, int64_t rows, int64_t k) { set(x, rows, k, k); }
  /// A copy with RMS norm: x / sqrt(mean(x^2) + eps) * gain (arXiv:1910.07467). zeros: [rows], not 0
  /// for rows that become zeros; or null.
  void pack_normalized(const float* x, int64_t rows, int64_t k, const float* gain, float eps,
                       const uint8_t* zeros = nullptr);

  /// A copy of some rows of x, [*, k].
  void pack_gathered(const float* x, std::span<const int64_t> rows, int64_t k);

  /// Copies the values, [rows, k].
  void unpack(float* out) const;

  int64_t rows() const { return rows_; }
  int64_t k() const { return k_; }
  /// What kernels read of a group.
  TileInput input(const RowGroups& groups, int64_t g, WeightType weights) const;

 private:
  void set(const float* x, int64_t rows, int64_t k, int64_t stride);
  /// [k][rows of the group], group after group.
  const float* columns(const RowGroups& groups) const;
  /// In 8 bits: [k/4][rows of the group] of x / scale + 128, four in a word.
  const uint32_t* quads(const RowGroups& groups) const;
  const RowPieces& pieces(const RowGroups& groups, WeightType weights) const;

  const float* x_ = nullptr;
  int64_t rows_ = 0, k_ = 0, stride_ = 0;
  std::vector<float> copy_;                        // of rows that are not as the caller has them
  mutable int64_t in_columns_ = 0, in_quads_ = 0;  // of so many groups
  mutable std::optional<WeightType> in_pieces_;    // of these weights
  mutable std::vector<float> columns_, scales_;    // scales_: of rows in quads
  mutable std::vector<uint32_t> quads_;
  std::unique_ptr<RowPieces> pieces_;
};

/// Part of the result: rows [row, row + rows) of columns [column, column + columns), of the matrix
/// of panel `panel`; values are [rows][panel_width()]. The lines of the result that the tile of `next_row` and
/// `next_column` goes to are fetched when this one is used: of the next rows or, after the last, of the next panels; this
/// tile's own at the end.
struct Tile {
  int64_t panel = 0, row = 0, rows = 0, column = 0, columns = 0;
  const float* values = nullptr;
  int64_t next_row = 0, next_column = 0;
};

/// Calls `done` for each tile of x w in the given panels. `next` is fetched while the last panels are computed. `later`:
/// what is fetched beside the panels, a line every four steps of k, or null; waits while `next` needs its place. `done`
/// multiplies nothing itself: the thread's tiles are in use (kernels/cpu/amx.h).
void multiply(const PackedRows& x, const PackedMatrix& w, PanelSource panels,
              const std::function<void(const Tile&)>& done, NextPanels next = {},
              FetchQueue* later = nullptr);
inline void multiply(const PackedRows& x, const PackedMatrix& w, PanelRange panels,
                     const std::function<void(const Tile&)>& done, NextPanels next = {},
                     FetchQueue* later = nullptr) {
  multiply(x, w, PanelSource(panels), done, next, later);
}

/// What usually becomes of a tile.
void store_tile(const Tile& tile, float* y, int64_t stride);                // y = tile
void add_tile(const Tile& tile, float* y, int64_t stride);                  // y += tile
void scale_tile(const Tile& tile, float* y, int64_t stride, float factor);  // y = factor * tile

/// y = activation(tile), and y = y * activation(tile).
void activate_tile(const Tile& tile, Activation activation, float* y, int64_t stride);
void multiply_activated_tile(const Tile& tile, Activation activation, float* y, int64_t stride);

}  // namespace quintet
