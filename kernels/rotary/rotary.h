#pragma once
// Rotary position embeddings (arXiv:2104.09864), as flaxformer's embedding.apply_rotary_embedding has them:
// of a head's d numbers, j and j + d/2 are a point that is turned by position / max_timescale^(2j/d).
//
//   rotate       x [b, l, h d]   ->  y [b, l, h d]     token t of a row stands at position t
//   rotate_grad  dy [b, l, h d]  ->  dx [b, l, h d]    turned back
//
// Attributes: h; max_timescale. Angles, sines and cosines are float32; d is even.

#include <span>
#include <vector>

#include "kernels/kernel.h"

namespace quintet {

/// By what the points of a head are turned: turn [head_dim] are their cosines, then their sines.
class Rotation {
 public:
  Rotation(int64_t head_dim, double max_timescale);
  void at(int64_t position, float* turn) const;
  /// Of each point, of a position's angle.
  std::span<const float> frequencies() const { return frequencies_; }
  /// Some heads that lie behind each other; y may be x.
  void apply(const float* turn, const float* x, float* y, int64_t heads) const;

 private:
  std::vector<float> frequencies_;  // [head_dim / 2]
};

/// For GpuKernels::rotate_rows: rows of heads in device memory, in place. positions [rows].
struct RotateRows {
  DType dtype = DType::bf16;
  void* x = nullptr;
  int64_t rows = 0, heads = 0, head_dim = 0, row_stride = 0;  // row_stride: in elements
  const int32_t* positions = nullptr;
  double max_timescale = 1e4;
};

void rotate_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void rotate_grad_cpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
