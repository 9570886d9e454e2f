#pragma once
// Rotary position embeddings (arXiv:2104.09864), as flaxformer's embedding.apply_rotary_embedding has them:
// of a head's d numbers, j and j + d/2 are a point that is turned by position / max_timescale^(2j/d).
//
//   rotate       x [..., h d], positions [...]   ->  y [..., h d]
//   rotate_grad  dy [..., h d], positions [...]  ->  dx [..., h d]    turned back
//
// Positions are int32, or absent: then token t of [.., t, h d] stands at position t. Attributes: h; max_timescale;
// turned: so many heads, the first, others are copied. Angles, sines and cosines are float32; d is even.

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

/// Operands of both ops, as their kernels read them.
struct RotateShape {
  int64_t rows, heads, head_dim;  // of this block
  int64_t turned;                 // heads, the first of the block
  int64_t first, length;          // without positions row r is at first + r % length

  RotateShape(const View& x, const Attrs& attrs);
};

void rotate_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void rotate_grad_cpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
