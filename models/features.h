#pragma once
// Model features (host arrays) as tensors: rows of a batch, and the segment ids that masks are made
// of.

#include "models/base_model.h"
#include "runtime/trainer/step_feeds.h"

namespace quintet {

/// The feature, or kData naming it and those that are there.
const HostArray& feature(const HostArrays& batch, const std::string& name);

/// Rows of a [rows, length] array made of a batch, as a tensor over all ranks that knows its place in
/// the whole batch. A step that is recorded makes the array again from each batch.
Tensor rows_of(const HostArrays& batch, Rows rows, const ArrayOf& make);
/// Of a feature.
Tensor rows_of(const HostArrays& batch, Rows rows, const std::string& name);

/// Effective segment ids of T5X's attention masks: 0 where the token is padding, else 1 + segment
/// id (1 everywhere if not packed). Two positions see each other exactly if these are equal and not
/// 0.
Tensor mask_segments(const HostArrays& batch, const std::string& tokens,
                     const std::string& segment_ids, Rows rows);

/// flaxformer's get_decoder_logit_mask of decoder_input_tokens, int32: 0 for padding, 1 for tokens and
/// for the zeros that start a target.
HostArray decoder_token_mask(const HostArrays& batch);
Tensor decoder_token_mask(const HostArrays& batch, Rows rows);

}  // namespace quintet
