#pragma once
// Work of the current device that is queued again and again with the same memory.
//
//   RepeatedWork step;
//   step.run(weights.ranks, [&] { queue kernels });        // the same work each time

#include <cstdio>
#include <functional>
#include <memory>

#include "kernels/device.h"
#include "runtime/base/memory/out_of_memory.h"
#include "runtime/mesh/collectives/collectives.h"

namespace quintet::decoding {

class RepeatedWork {
 public:
  /// The first two times runs `work`: once makes plans and memory. Then it is recorded, and later
  /// times repeat the recording. `ranks` do the same together; where they talk through ordinary memory,
  /// nothing can be recorded, and `work` is run each time; so it is where one device lacks the memory for a
  /// recording's own blocks.
  void run(const Group& ranks, const std::function<void()>& work) {
    if (recording_ != nullptr) return launch();
    work();
    Device::current().synchronize();
    if (warm_ && may_record_) record(ranks, work);
    warm_ = true;
  }

  /// Another work is run from now on.
  void forget() {
    recording_.reset();
    collectives_.reset();
    warm_ = false;
    may_record_ = true;
  }

 private:
  void launch() const {
    const auto launch = [this] { recording_->launch(); };
    collectives_ == nullptr ? launch() : collectives_->launch(launch);
  }
  void record(const Group& ranks, const std::function<void()>& work) {
    if (ranks.size() > 1) {
      collectives_ = ranks.comm()->record();
      if (collectives_ == nullptr) return;
    }
    try {
      recording_ = Device::current().record([&] {
        work();
        if (collectives_ != nullptr) collectives_->close();
      });
    } catch (const OutOfMemory& error) {
      if (ranks.size() > 1) throw;
      may_record_ = false;
      fmt::print(stderr, "steps of generation are not recorded as a graph: {}\n", error.what());
    }
  }

  std::unique_ptr<RecordedCollectives> collectives_;  // goes after the recording
  std::unique_ptr<Recording> recording_;
  bool warm_ = false, may_record_ = true;
};

}  // namespace quintet::decoding
