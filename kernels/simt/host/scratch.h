#pragma once
// Memory for the time of one kernel's host code, from the pool of the current device.
//
//   simt::Scratch partials(blocks * e * sizeof(float));
//   simt::launch(sum_kernel, ..., partials.data<float>());
//
// It may go back while its kernels are still queued: all work of a device is in one stream.

#include "kernels/device.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU::simt {

class Scratch {
 public:
  explicit Scratch(int64_t bytes, Stream = {}) {
    const MemoryScope scope(MemoryKind::kScratch);
    buffer_ = quintet::Device::current().memory().allocate(bytes);
  }
  template <typename T>
  T* data(int64_t byte_offset = 0) const {
    return reinterpret_cast<T*>(buffer_.get() + byte_offset);
  }

 private:
  Buffer buffer_;
};

}  // namespace quintet::QT_GPU::simt
