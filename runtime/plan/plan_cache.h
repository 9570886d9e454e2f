#pragma once
// Plans made once: a step calls its ops with the same layouts as the step before.

#include "runtime/plan/plan.h"

namespace quintet {

/// plan_op's answer, remembered by this thread for as long as `sharding` is the same.
const Plan& planned(const Op& op, const Tensors& inputs, const std::vector<ResultShape>& shapes,
                    const Attrs& attrs, const OutputMask& make, const Sharding& sharding);

}  // namespace quintet
