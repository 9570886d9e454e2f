#pragma once
// Work of the current device that is queued again and again with the same memory.
//
//   RepeatedWork step;
//   step.run([&] { queue kernels });        // the same work each time

#include <functional>
#include <memory>

#include "kernels/device.h"

namespace quintet::decoding {

class RepeatedWork {
 public:
  /// The first two times runs `work`: once makes plans and memory. Then it is recorded, and later
  /// times repeat the recording.
  void run(const std::function<void()>& work) {
    if (recording_ != nullptr) return recording_->launch();
    work();
    Device::current().synchronize();
    if (warm_) recording_ = Device::current().record(work);
    warm_ = true;
  }

 private:
  std::unique_ptr<Recording> recording_;
  bool warm_ = false;
};

}  // namespace quintet::decoding
