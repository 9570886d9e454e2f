#pragma once
// T5X's other layouts by the names and shapes that our networks have: the layers of scanned stacks, which T5X
// keeps in one array along an axis of their own (scalable_t5, flaxformer with scan_layers), an array each; and
// heads that have axes of their own, in one axis. Parameters and optimizer state alike; the zeros that T5X keeps
// for slots of Adafactor that are not used are left out.
//
//   "target/encoder/encoder/attention/query/kernel"          [512, 24, 8, 64]
//   "target/encoder/layers_7/attention/query/kernel"         [512, 512]

#include <cstdint>
#include <memory>

#include "checkpoint/checkpoint_reader.h"

namespace quintet::t5x {

constexpr int64_t kMostStackBytes = int64_t{2} << 30;

/// What reads `stored` so, and keeps stacks whose first layer was read and whose last was not, of `most_bytes`
/// or one: each is then decompressed once; `stored` itself where it has neither. Throws ExitCode::kData naming an array
/// whose shape fits no layout of T5X.
std::shared_ptr<const CheckpointReader> by_layer(std::shared_ptr<const CheckpointReader> stored,
                                                 int64_t most_bytes = kMostStackBytes);

}  // namespace quintet::t5x
