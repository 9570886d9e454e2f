#pragma once
// Parameters in the bits that generation keeps them in, one by one under their T5X names: what a
// quantized model's file holds. A PackedNetwork made of them is, bit for bit, the one that would be
// made of the float32 parameters.
//
//   const QuantizedParameter q = quantize_parameter(spec, name, view, WeightType::int8);
//   write(name, q.values); if (q.scales.elements() > 0) write(name + "_scale", q.scales);
//
// Kernels: bfloat16, or in 8 bits, int8 or float8 (held as uint8), with a scale a column (of stacked
// experts: each its own). In 8 bits `wo` and untied embeddings are bfloat16. Query kernels hold the attention's factor where the
// configuration has scale_attn_logits. Gains, biases and routers stay as they are.

#include <optional>
#include <string>

#include "kernels/prepacked_matmul/prepacked_matmul.h"
#include "models/decoding/network/parameter_source.h"
#include "models/spec.h"
#include "runtime/base/host_array.h"
#include "runtime/mesh/collectives/collectives.h"

namespace quintet::decoding {

/// What `wo` and embeddings take when other matrices take `type`.
WeightType high_precision(WeightType type);
/// Of a matrix in these weights, before it is packed.
DType stored_dtype(WeightType type);
/// Whether in a byte it has a scale a row, for its rows are what is used of it.
bool is_token_table(const std::string& name);
/// What a query kernel is divided by before it is quantized; none: nothing, or no query kernel.
std::optional<float> factor_of(const ModelSpec& spec, const std::string& name);

/// The weights that a device generates with.
struct InferenceWeights {
  // f32, and a device has it all: as the model's parameters are, nothing is copied
  WeightType type = WeightType::f32;
  ParameterSource source = {};  // else: float32 parameters, or quantized ones
  Group ranks = {};             // whose devices hold the network together; alone: one has it all
};

struct QuantizedParameter {
  HostArray values;
  HostArray scales;  // 8 bits: [.., columns], of tied embeddings [vocab]; else of no element
};
/// value: float32. `weights`: bf16, int8 or fp8.
QuantizedParameter quantize_parameter(const ModelSpec& spec, const std::string& name,
                                      const View& value, WeightType weights);

/// Some rows or columns of a matrix, or of each of a stack.
QuantizedParameter part_of(const QuantizedParameter& matrix, const ParameterPart& part);

/// The same of what a source gives, float32 or quantized already; throws kData naming a parameter that
/// is neither or not of this specification.
QuantizedParameter quantized_parameter(const ModelSpec& spec, const std::string& name,
                                       const StoredParameter& stored, WeightType weights,
                                       const std::vector<int64_t>& sizes);

}  // namespace quintet::decoding
