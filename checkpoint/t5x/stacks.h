#pragma once
// A checkpoint of an array a layer as T5X's scalable_t5 stores it: heads on an axis of their own, and with
// scan_layers the layers of a stack in one array along an axis of theirs; by_layer()'s inverse but for the slots
// that Adafactor does not use.
//
//   "target/encoder/layers_7/attention/query/kernel"         [512, 512]
//   "target/encoder/encoder/attention/query/kernel"          [512, 24, 8, 64]

#include <map>
#include <memory>
#include <optional>

#include "checkpoint/checkpoint_reader.h"

namespace quintet::t5x {

struct Stacking {
  std::optional<int> axis = 1;  // of the layers: T5X's param_scan_axis; none: an array a layer
  int64_t heads = 1;            // of attention; 0: in one axis with their width
  // Layers of a block that is stacked, "subblock_0", "subblock_1", ..; none: layers are. flaxformer's, with experts.
  std::map<std::string, int64_t> blocks = {};  // of "encoder" and "decoder"
};

/// Of Adafactor's factors, v_row is that of the model's width, as T5X's standard_logical_factor_rules have it.
/// Throws a usage error naming a tensor that such networks have no place for: experts without blocks, a position
/// bias that layers share, layers that differ.
std::shared_ptr<const CheckpointReader> stacked(std::shared_ptr<const CheckpointReader> layers,
                                                const Stacking& stacking);

}  // namespace quintet::t5x
