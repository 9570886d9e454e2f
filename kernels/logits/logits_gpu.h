#pragma once
// Drawing a token from each row of logits on a GPU, as temperature_sample does on the CPU: divided
// by the row's temperature, cut to the topk largest (and what ties with the last) or to the fewest
// likely ones that hold the mass topp, then the largest of logit + Gumbel noise; token v of row r
// takes element r * vocab + v of the noise of the step's key. log_probs: of what was drawn, after
// temperature and cut, or with rescale_log_probs false of the logits as they came; a greedy row's
// is 0 or its logarithm likewise. Ties go to the lower token. All pointers are device memory.
// Deterministic: masses are added as integers.

#include "kernels/logits/sample_rows.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

void sample_gpu(const SampleRows& rows, Stream stream);

/// Draws as choose_token does (models/decoding/search/token_choice.h), each by its own rules: noise is that of
/// its own key, token v takes element v. At most
/// kMostDrawnFrom tokens.
void draw_gpu(const DrawRows& draws, Stream stream);

/// A step of temperature_sample (models/decoding/search/temperature_sample.h) behind the draw: each row takes
/// its prompt's token or the one drawn, until it ends; the next step's key is split off.
void advance_samples_gpu(const SampleStep& step, Stream stream);

/// The largest elements, for greedy and beam search. NaN is no number: never among them, but a row
/// that has one has NaN for log_sum.
void top_gpu(const TopRows& rows, Stream stream);

/// A step of beam_search (models/decoding/search/beam_search.h): the 2 * beams best continuations of each
/// item, and what becomes of them. The same numbers as on the host, exactly, from equal logits and
/// sums; items that no step can change any more are settled and rest.
void beam_gpu(const BeamStep& step, Stream stream);

}  // namespace quintet::QT_GPU
