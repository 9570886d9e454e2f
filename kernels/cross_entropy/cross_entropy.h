#pragma once
// Output projection and softmax cross-entropy in one op, forward and gradient in one pass over
// chunks of tokens: no [tokens, vocabulary] array beyond a chunk.
//
//   cross_entropy    x [..., e], w [e, v], targets int32 [...], weights [...]
//     -> loss _, z_loss _, correct _, log_probability [...]?, dx [..., e]?, dw [e, v]?
//   cross_entropy_t  the same with w [v, e] (the embedding table of a model with tied logits)
//
//   logits = logit_scale * x w;  lse = log sum exp(logits)
//   log_probability = logits[target] - lse                      (0 where the target is no token)
//   loss = sum over tokens of weight * (xent - constant + z_loss * lse^2)
//   z_loss = the last part alone;  correct = number of tokens of non-zero weight whose
//   target is the first largest logit (T5X's accuracy takes the weights as a mask)
// with xent = -sum_j soft_j (logits_j - lse), soft = 1 - s at the target and s / (v - 1) elsewhere,
// s = label_smoothing, and constant = -((1-s) log(1-s) + s log(s/(v-1) + 1e-20)), so that a perfect
// prediction costs 0. dx, dw: gradients of `loss`, d loss / d logits =
//   weight * ((1 + 2 z_loss lse) softmax - soft).
// dw may be added to what is there (`&` in runtime/op/ops.def).
//
// Attributes: label_smoothing (double, 0), z_loss (double, 0), logit_scale (double, 1; T5 with tied
//   logits uses 1 / sqrt(e)); is_total (bool, false): dw may have been added to an earlier one, so that the
//   gradient of loss must be 1, which is for the op's own gradient to check.
// Errors: a target outside [0, v) whose weight is not 0 is ExitCode::kData. Tokens of weight 0 cost
// no gradient work, nor any if log_probability is absent too. float32 products and exponentials;
// sums over tokens in double, in token order. dx depends on the number of threads by rounding,
// everything else does not. Source: t5x losses.py (compute_weighted_cross_entropy), models.py
// (compute_metrics).

//
// Where the vocabulary is sharded over ranks the op runs in two phases: each rank passes on what its
// block of the logits comes to (cross_entropy_statistics: x, w, targets -> [..., 1, 5]), and from
// those of all blocks [..., blocks, 5] and the logits, computed again, follows the rest
// (cross_entropy_apply: x, w, targets, weights, statistics -> as above). The sums, log_probability
// and dx are then this block's parts, to be added over the blocks.

#include "kernels/kernel.h"

namespace quintet {

void cross_entropy_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void cross_entropy_t_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void cross_entropy_statistics_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void cross_entropy_t_statistics_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void cross_entropy_apply_cpu(Views in, Views out, const Attrs& attrs, Stream stream);
void cross_entropy_t_apply_cpu(Views in, Views out, const Attrs& attrs, Stream stream);

}  // namespace quintet
