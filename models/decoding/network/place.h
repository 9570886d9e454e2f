#pragma once
// Where a matrix that generation multiplies with lies among a model's parameters: under its own name, but those of
// fused layers (LayerForm::fused) are a part of every head of one parameter.
//
//   place_of(spec.decoder, "decoder/layers_0/mlp/wi_1/kernel").parameter    // "decoder/layers_0/q_wi_fused/kernel"
//   const ParameterSource matrices = by_matrix(spec, parameters);    // for loaders, which ask for matrices

#include "models/decoding/network/parameter_source.h"
#include "models/spec.h"
#include "runtime/base/axis.h"

namespace quintet::decoding {

struct Place {
  std::string parameter;
  // Of a part: its axes, and `count` times `unit` elements that stand `stride` apart, the first at `offset`.
  Axes axes = {};
  int64_t count = 0, unit = 0, stride = 0, offset = 0;

  bool is_part() const { return count > 0; }
};
/// `stack`: with the heads of all ranks.
Place place_of(const StackSpec& stack, const std::string& name);

/// Whether a projection of attention, "query", "key" or "value", gives what one head has and all others share.
bool is_shared(const LayerConfig& layer, std::string_view projection);

/// `parameters` by the names of matrices; throws kData for a part of one that is in 8 bits, or of another size.
ParameterSource by_matrix(const ModelSpec& spec, const ParameterSource& parameters);

}  // namespace quintet::decoding
