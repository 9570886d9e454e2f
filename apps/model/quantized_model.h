#pragma once
// A model directory whose weights are in fewer bits, for generate, infer and serve: config.gin and
// checkpoint_<step>/ with target/<name>, those in a byte with target/<name>_scale, the state
// {"quantized": "int8", "vocabularies": ..}, and vocabularies/ with their files. models/decoding/network/quantized_parameters.h says what the values are.
//
//   write_quantized(trained, WeightType::int8, "/tmp/small");
//   const auto network = pack(*model, weights_of(requested, reader));

#include <filesystem>
#include <memory>
#include <optional>

#include "apps/model/trained_model.h"
#include "apps/model/weights/stored_parameters.h"
#include "checkpoint/checkpoint_reader.h"
#include "models/decoding/cpu/packed_network.h"

namespace quintet {

/// In which weights a checkpoint is; none: a training run's.
std::optional<WeightType> quantization_of(const CheckpointReader& checkpoint);
/// Throws kData naming the folder if it is a quantized model's, whose parameters nothing can train with.
void check_not_quantized(const CheckpointReader& checkpoint);
/// What the flag asks for, none being what is there; throws a usage error if a quantized checkpoint
/// is in others.
Weights weights_of(std::optional<WeightType> requested,
                   const std::shared_ptr<const CheckpointReader>& checkpoint);
/// The same for who only generates: on the CPU, and where `ranks` hold the network together, parameters go from
/// the checkpoint to where they are read, and are never in memory twice.
Weights weights_to_generate(std::optional<WeightType> requested,
                            const std::shared_ptr<const CheckpointReader>& checkpoint,
                            SharedMemoryGroup* ranks = nullptr);

/// The parameters of a checkpoint that generation with these weights reads from the model: all, or none where
/// they are read from the checkpoint. Those that are not stored may be initialised: load_parameters().
std::vector<std::string> load_for(const Weights& weights, const CheckpointReader& checkpoint,
                                  BaseModel& model, std::optional<int64_t> fallback_seed = {});

/// The model's parameters by their names in a checkpoint, and the scales of those in a byte. They must be on the CPU.
HostArrays quantized_arrays(const BaseModel& model, WeightType weights);

/// Writes the model to `folder`, which must hold no checkpoint yet. The parameters must be on the CPU.
void write_quantized(const TrainedModel& trained, WeightType weights,
                     const std::filesystem::path& folder);

}  // namespace quintet
