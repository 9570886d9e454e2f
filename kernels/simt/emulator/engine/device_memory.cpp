#include "kernels/simt/emulator/engine/device_memory.h"

#include <sys/mman.h>

#include <cstdlib>

namespace quintet::emulated::simt::emulator {
namespace {

/// The protection key of the device's memory; -1: it is not asked for, or the processor has none.
int key() {
  static const int it = std::getenv("QUINTET_GUARD_DEVICE_MEMORY") != nullptr
                            ? ::pkey_alloc(0, PKEY_DISABLE_ACCESS)
                            : -1;
  return it;
}

size_t pages(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

void* allocate_device_memory(size_t bytes) {
  if (key() < 0) return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  const int access = PROT_READ | PROT_WRITE;
  void* const pointer = ::mmap(nullptr, pages(bytes), access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pointer == MAP_FAILED) return nullptr;
  if (::pkey_mprotect(pointer, pages(bytes), access, key()) == 0) return pointer;
  ::munmap(pointer, pages(bytes));
  return nullptr;
}

void release_device_memory(void* pointer, size_t bytes) {
  if (key() < 0)
    std::free(pointer);
  else
    ::munmap(pointer, pages(bytes));
}

DeviceMemoryAccess::DeviceMemoryAccess() {
  if (key() < 0) return;
  before_ = ::pkey_get(key());
  ::pkey_set(key(), 0);
}
DeviceMemoryAccess::~DeviceMemoryAccess() {
  if (key() >= 0) ::pkey_set(key(), static_cast<unsigned>(before_));
}

}  // namespace quintet::emulated::simt::emulator
