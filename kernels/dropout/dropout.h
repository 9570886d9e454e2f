#pragma once
// Dropout whose mask is a function of a key and of the place of an element in the whole array.
//
//   dropout  x [...]  ->  y [...]       y = keep ? x / (1 - rate) : 0
//
// A GPU multiplies by the rounded 1 / (1 - rate): at most one unit in the last place from the quotient.
//
// Its gradient is dropout itself, of the gradient, with the same attributes.
// Attributes: rate (double in [0, 1]); key0, key1 (int64, each a uint32: the two words of a JAX
// threefry key); broadcast_dim (int64, 0 or absent: every element has its own bit; -2: all places
// along the last axis but one share a bit, as T5 does along "length"); heads (int64, 0 or absent: x is as it
// is): x is [..., heads, n], of which the last two axes are joined.
// keep = uniform(bits of element i) < 1 - rate, bits in JAX's partitionable threefry scheme; i
// counts row-major in the global shape (broadcast_dim counted as one), so a block of an array gets
// what the whole would have got: masks equal jax.random.bernoulli(key, 1 - rate, shape). float32
// only.

#include "kernels/kernel.h"

namespace quintet {

/// x, its last axis taken apart into heads and their columns where the attributes say so.
inline View with_heads_apart(const View& x, const Attrs& attrs) {
  const auto heads = attrs.get_or<int64_t>("heads", 0);
  if (heads == 0) return x;
  View apart = x;
  const auto last = static_cast<size_t>(apart.rank++ - 1);
  const int64_t width = heads > 0 ? x.global[last] / heads : 0;
  QT_CHECK(width > 0 && width * heads == x.global[last] && x.sizes[last] % width == 0,
           "dropout: {} of {} columns are not those of some of {} heads", x.sizes[last],
           x.global[last], heads);
  for (auto* axes : {&apart.sizes, &apart.origin, &apart.global}) {
    (*axes)[last + 1] = axes == &apart.origin ? 0 : width;
    (*axes)[last] /= width;
  }
  return apart;
}

void dropout_cpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
