#pragma once
// How T5X stores the layers of a model, where that is not as here.

#include <optional>

#include "checkpoint/t5x/stacks.h"
#include "models/spec.h"

namespace quintet {

/// None: T5X has an array a layer, too.
inline std::optional<t5x::Stacking> t5x_stacking(const ModelSpec& spec) {
  const LayerConfig& layer = spec.decoder.layer;
  if (!layer.scalable) return std::nullopt;
  t5x::Stacking stacking{.axis = std::nullopt,
                         .heads = layer.scalable->heads_apart ? layer.num_heads : 0};
  for (const StackSpec* stack : {&spec.decoder, spec.encoder ? &*spec.encoder : nullptr})
    if (stack != nullptr && stack->has_experts())
      stacking.blocks[stack->scope()] = stack->block_layers();
  if (layer.scalable->scan_layers)
    stacking.axis = static_cast<int>(layer.scalable->param_scan_axis);
  return stacking;
}

}  // namespace quintet
