#pragma once
// Rows as AMX's tiles multiply them (kernels/cpu/amx.h). Tiles take numbers of 8 bits of significand, float32 has 24: a row
// goes through them in pieces, each as if it were a row, whose products are added up in float32.
//
//   weights        a row's pieces
//   bf16           three bfloat16 numbers, whose sum is the float32 number if that is at least 2^-110, else near it
//   int8           three signed digits to base 256 of the number in units of a scale, 2^-23 of the row's largest magnitude
//                  (each number is rounded to within 2^-24 of that, so a product to within 2^-24 of it times the sum of the
//                  column's magnitudes; a row with one number 1,000 times as large as the others keeps 14 bits of those)
//   int8_dynamic   the number rounded to 8 bits with a scale

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "kernels/prepacked_matmul/prepacked_matmul.h"
#include "kernels/prepacked_matmul/tile_input.h"

namespace quintet {

/// How rows go through tiles.
struct PieceForm {
  int64_t pieces = 0;   // of a number
  int64_t numbers = 0;  // of a tile's row
  /// Rows whose pieces fill the two tiles of a group.
  int64_t group_rows() const;
};
/// None: products with weights of this type and depth are made in vectors.
std::optional<PieceForm> piece_form(WeightType type, int64_t k);

class RowPieces {
 public:
  /// x: [rows, k], rows `stride` floats apart. Of `groups`, groups.most() rows each.
  void make(const float* x, int64_t stride, int64_t k, const RowGroups& groups, WeightType type);
  /// [steps of k][pieces][groups.most()] rows of a tile.
  const std::byte* group(int64_t g) const {
    return lines_[static_cast<size_t>(g * lines_of_group_)].data();
  }
  /// Of the rows from the first of a group on; of bf16 weights there are none.
  const float* scales(int64_t first_row) const { return scales_.data() + first_row; }

 private:
  struct alignas(64) Line : std::array<std::byte, 64> {};
  int64_t lines_of_group_ = 0;
  std::vector<Line> lines_;
  std::vector<float> scales_;
};

/// tile [rows, panel_width()] = a group's rows times a panel. The thread has amx::Tiles for the pieces of `group_rows` rows.
void multiply_pieces(WeightType type, const PieceForm& form, int64_t rows, int64_t group_rows,
                     const TileInput& in, float* tile);

}  // namespace quintet
