#pragma once
// Emulated GPUs that talk over the fake of NCCL, one a rank.

#include "kernels/simt/emulator/emulator.h"
#include "runtime/device/gpu_ops.h"
#include "tests/mesh/fake_nccl/fake_stream.h"
#include "tests/mesh/over_nccl.h"

namespace quintet::testing {

/// A GPU of each rank, its stream the null stream.
class NcclGraphs : public Nccl {
 protected:
  void SetUp() override {
    namespace emulator = emulated::simt::emulator;
    Nccl::SetUp();
    set_fake_capture({emulator::is_recording, emulator::queue});
    emulator::set_other_streams([](Stream stream, std::function<void()> work) {
      static_cast<FakeStream*>(stream.handle)->add(std::move(work));
    });
    for (int rank = 0; rank < 4; ++rank) gpus_.push_back(emulated::open_device(90));
  }
  Device& gpu(int rank) { return *gpus_[static_cast<size_t>(rank)]; }
  /// `body` on every rank, its GPU being the thread's.
  std::string over_gpus(int count, const std::function<void(Comm&)>& body, Job job = {}) {
    job.device = [this](int rank) -> Device& { return gpu(rank); };
    return over_nccl(
        count,
        [&](Comm& comm) {
          const Device::Use use(comm.device());
          body(comm);
        },
        job);
  }

 private:
  std::vector<std::unique_ptr<Device>> gpus_;
};

}  // namespace quintet::testing
