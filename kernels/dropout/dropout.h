#pragma once
// Dropout whose mask is a function of a key and of the place of an element in the whole array.
//
//   dropout  x [...]  ->  y [...]       y = keep ? x / (1 - rate) : 0
//
// Its gradient is dropout itself, of the gradient, with the same attributes.
// Attributes: rate (double in [0, 1]); key0, key1 (int64, each a uint32: the two words of a JAX
// threefry key); broadcast_dim (int64, 0 or absent: every element has its own bit; -2: all places
// along the last axis but one share a bit, as T5 does along "length").
// keep = uniform(bits of element i) < 1 - rate, bits in JAX's partitionable threefry scheme; i
// counts row-major in the global shape (broadcast_dim counted as one), so a block of an array gets
// what the whole would have got: masks equal jax.random.bernoulli(key, 1 - rate, shape). float32
// only.

#include "kernels/kernel.h"

namespace quintet {

void dropout_cpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
