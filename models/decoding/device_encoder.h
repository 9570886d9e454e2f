#pragma once
// An encoder on the current device, without dropout. A dense one whose weights are in fewer bits is run
// here, each matrix made wide for its product: for one in a byte 3 bytes a weight are moved beside the 2
// that the product reads in bfloat16.

#include "models/decoding/device_weights.h"

namespace quintet::decoding {

/// tokens, segments: int32 [batch, length] (segment 0 is padding) -> [batch, length, embed].
Tensor encode(const BaseModel& model, const DeviceWeights& weights, const HostArray& tokens,
              const HostArray& segments);

}  // namespace quintet::decoding
