#pragma once
// The rules of rules.h on a CPU: a block of one array, by one thread.
//
//   const bool finite = cpu::update_by_rule(arrays, begin, end, rules::Rms{0.9f, 0.1f, 1e-8f}, {});

#include "kernels/optimizers/gpu_arrays.h"

namespace quintet::cpu {

/// Elements [begin, end); whether all that was written to the parameter and its state is finite.
bool update_by_rule(const UpdateArrays& arrays, int64_t begin, int64_t end, const UpdateRule& rule,
                    GradientUse use);

}  // namespace quintet::cpu
