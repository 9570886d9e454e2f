#pragma once
// Bad data that a kernel meets on the device. The first one is kept in a slot of device memory and
// thrown as Error(kData), kParameter as Bug, by the device's next synchronisation; the kernel goes on.
//
//   FaultSlot* fault = simt::fault_slot();                   // host, passed to the kernel
//   if (id >= vocabulary) simt::raise_fault(fault, FaultCode::kEmbedId, id, position, vocabulary);  // fault.cuh

#include <cstdint>

namespace quintet {

enum class FaultCode : int32_t { kNone, kEmbedId, kTarget, kParameter };

/// In device memory; all zero: no fault.
struct FaultSlot {
  int32_t code = 0, padding = 0;
  int64_t value = 0, position = 0, limit = 0;
};

}  // namespace quintet
