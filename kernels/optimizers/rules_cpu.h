#pragma once
// The rules of rules.h on a CPU: a block of one array, by one thread.
//
//   const bool finite = cpu::update_by_rules(arrays, begin, end, std::array{RuleStep{rules::Rms{0.9f, 0.1f, 1e-8f}}});

#include <span>

#include "kernels/optimizers/gpu_arrays.h"

namespace quintet::cpu {

/// Elements [begin, end), one step after the other on as many as stay in the first-level cache; whether all that was
/// written to the parameter and its states is finite.
bool update_by_rules(const RuleArrays& arrays, int64_t begin, int64_t end,
                     std::span<const RuleStep> steps);

}  // namespace quintet::cpu
