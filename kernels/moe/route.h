#pragma once
// Which tokens go to which expert of a mixture-of-experts layer (arXiv:2101.03961, 2202.09368; the
// rules are those of flaxformer's routers).
//
//   route       x [b, l, e], w [e, x], bias [x]?  ->
//     0 gates     [b, l, k]  float32  weight of each choice in the layer's result; 0: not served
//     1 logits?   [b, l, x]  float32  x w + bias, for the gradient
//     2 auxiliary scalar     float32  this block's share of the load balancing loss
//     3 z_loss    scalar     float32  this block's share of the mean of logsumexp(logits)^2
//     4 rows      [b, l, k]  int32    packed row of each choice (dispatch.h); -1: not served, or padding
//     5 choices   [b, n]     int32    the other way: which choice (its flat index in rows) lies in a
//                                     packed row, b and n flattened; -1: the row is unused
//     6 offsets   [b, s]     int32    first packed row of each expert, and of none: s = x + 1 numbers,
//                                     the same in every one of the b rows
//     7 experts   [b, l, k]  int32    expert of each choice, served or not; -1: ignored padding
//     8 positions [b, l, k]  int32    its place in the expert's buffer of its group; those at or
//                                     beyond the capacity are not served; -1: has none
//     9 counts    [c] = [5]  float32  tokens served by some expert, choices served, sum of their
//                                     gates, tokens that count, slots of all buffers (for metrics)
//    10 load      [x]        float32  choices served by each expert
//   route_grad  x, w, logits, experts, gates, dgates [b, l, k]?, dauxiliary?, dz_loss?
//               ->  dx [b, l, e], dw [e, x], dbias [x]?    the last two may be added to what is there (`&` in ops.def)
//
// w and bias are float32, and logits, probabilities and losses are computed in float32 whatever x is.
// Tokens are numbered row by row of x. Consecutive `group_size` tokens make a group; the block holds
// whole groups. In each group and for each expert there is room for `capacity` choices (0: for all).
// Packed rows are sorted by expert, then group, then position, without gaps.
//
// Attributes
//   router          int64 of a Router
//   k               choices a token; experts_choose: the number of experts, choice j being expert j
//   capacity, group_size, groups     groups: of the whole batch, which the losses are means over
//   batch_priority  bool: tokens with the larger first gate are placed first (else: earlier ones)
//   ignore_padding  bool: tokens whose x is all zero are padding. tokens_choose: they go nowhere and
//                   count nowhere; others: their probabilities count as 0, but they may take slots.
//                   No router packs them
//   n, s, c         sizes of results: n b is at least the number of rows that can be served
//   padded_batch, padded_length   (0 or absent: b, l) the tokens are those of x padded with zeros to
//                   this many rows and columns; the added ones take part in routing, not in the results.
//                   Then x is the whole batch, and there is no bias
//   jitter, key0, key1   x is multiplied by uniform(1 - jitter, 1 + jitter), drawn by the element's
//                   global index; absent or 0: not
//
// Probabilities are softmax(logits). Ties go to the lower expert and the earlier token.
//   tokens_choose  each token chooses its k largest; first choices of all tokens of a group are
//                  placed before second choices; a gate is the probability
//   scatter        the same but for padding (flaxformer's TokensChooseScatterRouter)
//   experts_choose each expert chooses its `capacity` (at most group_size) largest; no auxiliary loss
// auxiliary = x^2 mean over groups and experts of (share of the group's tokens with a choice of the
// expert, served or not) (mean probability); the shares have no gradient.
// Equal bytes every time, whatever the thread count.

#include "kernels/kernel.h"

namespace quintet {

enum class Router : int64_t { tokens_choose, scatter, experts_choose };

void route_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void route_grad_cpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
