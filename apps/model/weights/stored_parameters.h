#pragma once
// A checkpoint's parameters as generation takes them, one at a time: where they lie in a mapped file, or
// copied and in float32.
//
//   const decoding::PackedNetwork network(spec, source_of(weights));

#include <memory>
#include <optional>
#include <string>

#include "checkpoint/checkpoint_reader.h"
#include "kernels/prepacked_matmul/prepacked_matmul.h"
#include "models/decoding/network/parameter_source.h"
#include "runtime/base/host_array.h"
#include "runtime/mesh/shared_memory_group.h"

namespace quintet {

/// The weights a network is packed in, and where they come from.
struct Weights {
  WeightType type = WeightType::f32;
  std::shared_ptr<const CheckpointReader> stored = {};  // null: from the model's parameters
  bool quantized = false;                               // `stored` has them in `type`
  SharedMemoryGroup* ranks = nullptr;                   // that hold the network together
};

/// Of a quantized checkpoint: the parameter that has the scales of another one.
std::string scales_name(const std::string& name);

/// A parameter, or a part of it. Throws kData naming it if it is not there.
HostArray read_stored(const CheckpointReader& checkpoint, const std::string& name,
                      const std::optional<decoding::ParameterPart>& part = {});
/// float32, bfloat16 or float16 in float32; throws kData naming a parameter of another type.
HostArray widened(HostArray array, const std::string& name);

/// Reads what is stored: in float32, unless it is quantized.
decoding::ParameterSource source_of(const Weights& weights);

}  // namespace quintet
