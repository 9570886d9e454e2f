#pragma once
// A model as a graph of ONNX that answers greedily: made by the walk over a model's specification that loads its
// parameters everywhere (models/decoding/network), and by the one description of a layer.
//
//   input    encoder_input_tokens  int32 [batch, length], padded with 0; of a decoder alone `inputs`, which it reads
//                                  behind the start token
//   input    max_decode_len        int64 []; left out: the run's
//   output   decodes               int32 [batch, steps]: each row up to its EOS, then 0
//
// The decoder is a Loop, a step each, that carries the keys and values of the tokens so far and ends when every row has.
// An encoder alone gives, instead of the last two, `encoded`, float32 [batch, length, embed].

#include "apps/export/onnx/graph.h"
#include "kernels/prepacked_matmul/prepacked_matmul.h"
#include "models/decoding/network/parameter_source.h"
#include "models/spec.h"

namespace quintet::onnx {

inline constexpr int64_t kMostOperatorBytes = 32 << 20;  // of a graph, beside its weights

struct GraphOptions {
  // Of the weights in the file, sums are float32: their dtype, or how they are quantized (f32: not at all).
  DType dtype = DType::f32;
  WeightType weights = WeightType::f32;
  int64_t most_bytes = 0;  // that they take, for which room is made
  int64_t max_decode_len = 128;
  std::vector<int32_t> eos_ids = {1};
};

/// Throws a usage error that names what of the specification has no graph here.
void check_has_graph(const ModelSpec& spec);
/// Parameters in float32, or quantized as the options say; large ones go to `external`, one at a time. Throws what the source throws, and kData for a number too large for the dtype.
Graph t5_graph(const ModelSpec& spec, const decoding::ParameterSource& source,
               const GraphOptions& options, ExternalData* external = nullptr);

}  // namespace quintet::onnx
