#pragma once
// Multi-head attention with T5's bucketed relative position bias, segment, causal and prefix masks
// and dropout of the attention weights. Nothing of size [queries, keys] exists beyond one tile.
//
//   attention       q [b, q, h*d], k, v [b, k, h*d], table? [h, r] (r buckets), q_segments? [b, q],
//                   kv_segments? [b, k], prefix? [b, k]  ->  out [b, q, h*d], lse? [b, h, q]
//   attention       also takes ranges? (ranges.h), the mask in the form that the GPU's kernels read
//   attention_grad  the same eight, out, lse, dout [b, q, h*d]  ->  dq, dk, dv, dtable?
//                   (dtable may be added to what is there: `&` in runtime/op/ops.def)
//
//   score[q, k] = scale * <q, k> + table[h, bucket(position of k - position of q)]
//   p = softmax of score over the allowed keys;  out = sum over k of p * keep[b, h, k] * v
//   lse = log of the sum of exp(score) over the allowed keys, which the gradient reads
//
// Positions are indices into the whole q and k (View::origin), those of q plus `q_offset`; packing
// does not restart them. bucket(): buckets.h. A key is allowed if
//   (no segments given, or q_segments[q] == kv_segments[k] != 0) and
//   (not causal, or k's position <= q's, or prefix is given and not 0 at both)
// where the prefix flag of a query is the one of the key at its position (self-attention). A query
// without an allowed key attends to ALL keys with the same weight 1 / k, padding included, and lse
// is -1e10: T5X adds -1e10 to masked scores in float32, which swallows them. Gradients flow through
// such rows, to the table too. With no keys at all (k = 0) out is 0.
//
// Attributes: h (int, heads of the whole array; q, k, v may hold some of them: origin of their last
//   axis), causal (bool, false), bidirectional (bool, true) and, with a table, max_distance (int) of
//   the buckets, scale (double, 1: T5 does not scale), q_offset (int, 0: position of the first query,
//   for decoding), rate (double, 0), key0, key1 (int, the words of a Threefry key): keep[b, h, k]
//   is 0 with probability rate, else 1 / (1 - rate), one draw for all queries as in T5X: element
//   (b, h, k) of jax.random.bernoulli(key, 1 - rate, [b, h, 1, k]), by global index.
// float32; products and softmax accumulate in float32, the table's gradient over the batch in
// double. Results depend neither on the number of threads nor on the batch around a sequence.
// Sources: t5x examples/t5/layers.py (dot_product_attention, make_decoder_mask); tiling and the use
// of lse: Dao et al., arXiv:2205.14135.

#include "kernels/kernel.h"

namespace quintet {

/// Score of a masked key in T5X, and lse of a query that has no allowed key.
inline constexpr float kMaskedScore = -1e10F;

/// ranges.h
void attention_ranges_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void attention_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void attention_grad_cpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
