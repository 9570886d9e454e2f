#pragma once
// Whether what an update writes is finite, at no cost in memory traffic: a number a thread, and a store
// only where something is not.

#include "kernels/simt/simt.cuh"

namespace quintet::QT_GPU {

/// `bad` begins as 0 and is NaN for ever once a number was NaN or infinite.
QT_DEVICE void watch(float& bad, float written) { bad += 0.0f * written; }

/// The threads of a launch that saw one all store the same.
QT_DEVICE void mark_if(float bad, int32_t* not_finite) {
  if (bad != 0 && not_finite != nullptr) *static_cast<volatile int32_t*>(not_finite) = 1;
}

}  // namespace quintet::QT_GPU
