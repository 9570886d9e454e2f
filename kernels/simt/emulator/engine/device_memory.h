#pragma once
// Memory of the emulated GPU. With QUINTET_GUARD_DEVICE_MEMORY in the environment only the device's work may
// touch it: a host that reads or writes it dies there, as with a GPU's, where the processor has protection keys
// (pkeys(7)). Without, or elsewhere, it is ordinary memory, whose ends AddressSanitizer sees.

#include <cstddef>

namespace quintet::emulated::simt::emulator {

/// Aligned to 256 bytes; null if there is none.
void* allocate_device_memory(size_t bytes);
void release_device_memory(void* pointer, size_t bytes);

/// While one lives, its thread does the device's work.
class DeviceMemoryAccess {
 public:
  DeviceMemoryAccess();
  ~DeviceMemoryAccess();
  DeviceMemoryAccess(const DeviceMemoryAccess&) = delete;
  DeviceMemoryAccess& operator=(const DeviceMemoryAccess&) = delete;

 private:
  int before_ = 0;
};

}  // namespace quintet::emulated::simt::emulator
