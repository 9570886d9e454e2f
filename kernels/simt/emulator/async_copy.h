#pragma once
// cp.async as the emulator does it; see kernels/simt/async_copy.cuh.

#include <cstddef>

namespace quintet::emulated::simt::emulator {

/// Copies `bytes` (4, 8, 16) at a moment between now and the thread's wait for its group.
void cp_async(void* dst, const void* src, size_t bytes, bool valid);
void cp_async_commit();
/// All but the newest `groups` groups of the thread arrive.
void cp_async_wait(int groups);

}  // namespace quintet::emulated::simt::emulator
