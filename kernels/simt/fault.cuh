#pragma once
// Device side of fault.h.

#include "kernels/simt/fault.h"
#include "kernels/simt/simt.cuh"

namespace quintet::QT_GPU::simt {

/// The slot of the current device, to be passed to kernels.
FaultSlot* fault_slot();

/// Keeps the first fault of the device.
__device__ inline void raise_fault(FaultSlot* slot, FaultCode code, int64_t value, int64_t position,
                                   int64_t limit) {
  if (atomicCAS(&slot->code, 0, static_cast<int32_t>(code)) != 0) return;
  slot->value = value;
  slot->position = position;
  slot->limit = limit;
}

}  // namespace quintet::QT_GPU::simt
