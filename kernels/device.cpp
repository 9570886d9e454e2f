#include "kernels/device.h"

#include <omp.h>
#include <unistd.h>

#include <cstring>

namespace quintet {
namespace {

class Cpu final : public Device {
 public:
  std::string kind() const override { return "cpu"; }
  std::string description() const override {
    return fmt::format("CPU, {} threads", omp_get_max_threads());
  }
  bool is_cpu() const override { return true; }
  std::span<const Kernel> ops() const override { return {}; }
  const GpuKernels& kernels() const override { throw Bug("the CPU has no table of GPU kernels"); }
  int64_t memory_bytes() const override {
    return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  }
  Memory& memory() override { return Memory::host(); }
  Stream stream() const override { return {}; }
  void copy_in(void* to, const void* host, int64_t bytes) override { copy(to, host, bytes); }
  void copy_out(void* host, const void* from, int64_t bytes) override { copy(host, from, bytes); }
  void copy(void* to, const void* from, int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void copy(const StridedCopy& copy) override { copy_strided_cpu(copy); }
  void fill(void* to, int byte, int64_t bytes) override {
    if (bytes > 0) std::memset(to, byte, static_cast<size_t>(bytes));
  }
  void synchronize() override {}
};

class CopiesInOrder final : public CopyStream {
 public:
  explicit CopiesInOrder(Device& device) : device_(device) {}
  void copy(void* to, const void* from, int64_t bytes) override { device_.copy(to, from, bytes); }
  void record(size_t) override {}
  void wait(size_t) override { device_.synchronize(); }
  void order() override {}

 private:
  Device& device_;
};

Device* device_of_process = nullptr;

}  // namespace

Device& Device::cpu() {
  static auto* device = new Cpu;
  return *device;
}
Device& Device::current() {
  if (Device* const device = ExecutionContext::current().device; device != nullptr) return *device;
  return device_of_process != nullptr ? *device_of_process : cpu();
}
std::unique_ptr<Recording> Device::record(const std::function<void()>&) {
  throw NotRecordable(description() + " records nothing");
}
std::unique_ptr<CopyStream> Device::copy_stream(size_t) {
  return std::make_unique<CopiesInOrder>(*this);
}
void Device::copy_aside(void* pinned, const void* from, int64_t bytes) {
  copy(pinned, from, bytes);
}
Buffer Device::pinned(int64_t bytes) { return Memory::host().allocate(bytes); }
void Device::use(Device& device) { device_of_process = &device; }

}  // namespace quintet
