#pragma once
// A device on which nothing is computed: ops have layouts and sizes, memory is counted, not used. For
// simulating a step (`quintet plan`). Random numbers and data are left out: every value is void. Its
// counters take every op and every kernel for one launch: the least that a GPU does.
//
//   AbstractDevice device;
//   const Device::Use use(device);
//   ... trainer.train(batch) ...
//   device.memory().peak_bytes();

#include <memory>
#include <vector>

#include "kernels/device.h"

namespace quintet {

class AbstractDevice final : public Device {
 public:
  /// `is_gpu`: it takes a GPU's place, not a CPU's: while ops run that keep a hidden layer on one, so does this, and products that share
  /// x are batched.
  explicit AbstractDevice(bool is_gpu = false);
  std::string kind() const override { return "abstract"; }
  bool memory_is_real() const override { return false; }
  bool supports_nccl() const override { return is_gpu_; }
  std::string description() const override { return "no device: sizes only"; }
  std::span<const Kernel> ops() const override { return ops_; }
  const GpuKernels& kernels() const override;
  Memory& memory() override { return memory_; }
  Stream stream() const override { return {}; }
  void copy_in(void*, const void*, int64_t) override { counters().copy(); }
  void copy_out(void* host, const void*, int64_t bytes) override;  // zeros
  void copy(void*, const void*, int64_t) override { counters().copy(); }
  void copy(const StridedCopy& copy) override;
  void fill(void*, int, int64_t) override {}
  void synchronize() override { counters().wait(); }

 private:
  bool is_gpu_;
  std::vector<Kernel> ops_;
  Memory memory_;
};

}  // namespace quintet
