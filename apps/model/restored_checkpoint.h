#pragma once
// A checkpoint of any format as RestoreCheckpointConfig says it is read: arrays under the names that the model
// gives them, rounded, dense arrays as experts, and a step that may begin anew.
//
//   const auto checkpoint = restored(open_checkpoint(folder), config.restore, shapes_of(parameters));
//   checkpoint->tensors();   // what is left after the transformations
//   checkpoint->step();      // 0 if a rule drops state/step

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/config/checkpoint_config.h"
#include "checkpoint/checkpoint_reader.h"
#include "runtime/tensor/parameters.h"

namespace quintet {

/// Names of a model's arrays, state/step among them, and their global shapes.
using ArrayShapes = std::map<std::string, std::vector<int64_t>>;

/// Of a model without an optimizer, as eval and infer read it.
ArrayShapes shapes_of(const Parameters& parameters);

/// Whether a checkpoint holds the state of an optimizer; others hold parameters alone.
bool has_optimizer_state(const CheckpointReader& checkpoint);

/// `checkpoint` itself if there is nothing to change. Throws a usage error for rules that name or match
/// nothing; kData for rules on quantized weights, and when a number is too large for the dtype that it
/// is rounded to.
std::shared_ptr<const CheckpointReader> restored(std::shared_ptr<const CheckpointReader> checkpoint,
                                                 const RestoreCheckpointConfig& config,
                                                 const ArrayShapes& model);

/// A warning that names the arrays of a model that a checkpoint does not hold; empty if there are none.
std::string initialized_text(const std::vector<std::string>& names);

}  // namespace quintet
