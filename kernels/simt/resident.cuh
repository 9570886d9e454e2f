#pragma once
// How large a cooperative launch may be.

#include "kernels/simt/launch.cuh"

namespace quintet::QT_GPU::simt {

/// The most blocks of a kernel, launched like `how` but for its grid, that the device holds
/// together.
int64_t resident_blocks(const void* kernel, const Launch& how);

template <typename... P>
int64_t resident_blocks(void (*kernel)(P...), const Launch& how) {
  return resident_blocks(reinterpret_cast<const void*>(kernel), how);
}

}  // namespace quintet::QT_GPU::simt
