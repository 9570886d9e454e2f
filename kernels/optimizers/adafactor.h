#pragma once
// Adafactor's passes over gradients and parameters. The caller (optim/adafactor/adafactor.cpp) cuts
// an array into lines, runs of elements that lie side by side in memory, and says of each where its
// statistics are. Along a line one of the two factored moments ("along") varies with the element
// and the other ("across") is one number. Passes run on a range of lines, on the calling thread;
// Highway.
//
//   factored:    factored_sums -> (new moments) -> factored_squares -> (clipping) -> factored_apply
//   unfactored:  full_moments  ->                                     (clipping) -> full_apply
//
// Those that write parameters or state say whether everything they wrote is finite.

#include <cstdint>
#include <span>

#include "kernels/optimizers/adafactor_shape.h"
#include "kernels/optimizers/float_pointer.h"

namespace quintet {

// A GPU takes tiles of a matrix, which is one batch of an array: up to so many of its lines by so many
// elements (adafactor.cuh). Sums of a tile take so many bytes of scratch memory.
inline constexpr int kAdafactorTileLines = 64, kAdafactorTileColumns = 128;
inline constexpr int64_t kAdafactorTileBytes =
    4 * (kAdafactorTileLines + kAdafactorTileColumns + 8);
static_assert(kAdafactorTileBytes % 16 == 0);    // any number of tiles leaves what follows aligned
inline constexpr int64_t kAdafactorWindows = 3;  // that are in work together

constexpr uint32_t adafactor_member_tiles(const AdafactorShape& s) {
  return s.members / kAdafactorTileLines + (s.members % kAdafactorTileLines != 0);
}
constexpr uint32_t adafactor_column_tiles(const AdafactorShape& s) {
  return s.length / kAdafactorTileColumns + (s.length % kAdafactorTileColumns != 0);
}
/// Of a matrix.
constexpr int64_t adafactor_matrix_tiles(const AdafactorShape& s) {
  if (s.elements == 0) return 0;
  return int64_t{s.groups / s.batches} * adafactor_member_tiles(s) * adafactor_column_tiles(s);
}
constexpr int64_t adafactor_tiles(const AdafactorShape& s) {
  return s.batches * adafactor_matrix_tiles(s);
}

/// Tiles of the largest window: whole matrices of at most `window` tiles together, or one matrix that is
/// larger.
int64_t adafactor_window_tiles(std::span<const AdafactorShape> shapes, int64_t window);
/// Scratch memory that an update on a GPU takes for its arrays that are sharded or for those that are
/// not. window: of a GPU with n multiprocessors 3n tiles, or 2n where a block has less than 204 KiB of
/// shared memory.
int64_t adafactor_scratch_bytes(std::span<const AdafactorShape> shapes, bool sharded,
                                int64_t window);

}  // namespace quintet

namespace quintet::cpu {

struct AdafactorLine {
  int64_t begin, length;  // elements of the array
  int64_t along, across;  // where its moments start; unused for unfactored arrays
  int64_t batch;          // which stacked array it belongs to
};
using AdafactorLines = std::span<const AdafactorLine>;

/// An array and its gradient; gradients count as gradient_scale * gradient.
struct AdafactorArrays {
  FloatPointer gradient;
  float gradient_scale;
  float* param;
  float* momentum;                // null without beta1
  bool momentum_is_bf16 = false;  // momentum points to bfloat16
};

/// Sums of squares of the gradient: line by line into gradient_squares, and element by element
/// added to along_squares[line.along + i - along_origin]. Sums of squares of the parameter line by
/// line.
void factored_sums(AdafactorLines lines, const AdafactorArrays& arrays, int64_t along_origin,
                   float* along_squares, float* gradient_squares, float* param_squares);

/// Factors of the update: gradient * along[...] * across[...].
struct AdafactorFactors {
  const float *along, *across;
};
/// Sum of squares of the unclipped update of each line.
void factored_squares(AdafactorLines lines, const AdafactorArrays& arrays, AdafactorFactors factors,
                      float* update_squares);

struct AdafactorApply {
  const float* step;  // by batch: learning rate * parameter scale / clipping
  float keep;         // 1 - weight decay
  float beta1, one_minus_beta1;
  bool skip_nan;  // numbers that would become NaN keep their value
};
///   u = step * update;  with momentum: m = beta1 m + (1 - beta1) u, u = m;  param = keep param - u
bool factored_apply(AdafactorLines lines, const AdafactorArrays& arrays, AdafactorFactors factors,
                    const AdafactorApply& apply);

struct AdafactorMoments {
  float* v;  // in place: v = decay v + (1 - decay) (gradient^2 + epsilon)
  float decay, mixing, epsilon;
  bool skip_nan;
};
/// New moments of an unfactored array, and sums of squares of update and parameter by line.
bool full_moments(AdafactorLines lines, const AdafactorArrays& arrays,
                  const AdafactorMoments& moments, float* update_squares, float* param_squares);
bool full_apply(AdafactorLines lines, const AdafactorArrays& arrays, const float* v,
                const AdafactorApply& apply);

}  // namespace quintet::cpu
