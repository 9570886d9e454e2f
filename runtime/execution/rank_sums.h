#pragma once
// Sums of a few numbers over the ranks of this thread's mesh: statistics, counts.

#include <span>

#include "runtime/mesh/collectives/collectives.h"
#include "runtime/mesh/layout.h"

namespace quintet {

/// Of every rank along `axes`; all of them call it and get the same bits. Where a step is only
/// planned the values stay.
void reduce_over_ranks(std::span<double> values, const MeshAxes& axes,
                       Reduction how = Reduction::sum);
/// The sum of values in the current device's memory, queued on its stream.
void sum_over_ranks_on_device(std::span<double> values, const MeshAxes& axes);
/// Likewise the largest of each value.
void max_over_ranks_on_device(std::span<float> values, const MeshAxes& axes);

}  // namespace quintet
