#pragma once
// `quintet plan --search`: of every layout how a step runs fastest within a device's memory.

#include <string>
#include <vector>

#include "apps/plan/layout_step.h"

namespace quintet {

/// What is chosen beside the layout.
struct StepChoice {
  int64_t microbatches = 1;
  bool interleave = false;  // microbatches
  bool remat = false;       // layers are computed again for the backward pass
  bool offload = false;     // the optimizer is the host's
  bool rounded = false;     // gradients are kept in bfloat16

  /// As `quintet train` takes them; empty: nothing is chosen.
  std::string flags() const;
};

/// A row a layout, those that run first, the fastest of them first. Whole activations and state are tried first; where
/// they do not fit more microbatches, then remat, then an optimizer on the host, and nothing slower than what does. Where
/// none of these, which change no result, fits, the same with gradients in bfloat16.
std::vector<LayoutRow> search_layouts(const LayoutCase& what,
                                      const std::vector<TrainingLayout>& layouts,
                                      const SimulatedJob& job, double model_flops);

}  // namespace quintet
