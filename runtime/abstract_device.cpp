#include "runtime/abstract_device.h"

#include <sys/mman.h>

#include <cstring>

#include "kernels/gpu_kernels.h"
#include "runtime/op.h"

namespace quintet {
namespace {

/// Addresses that nothing stands behind.
class AddressSpace final : public MemorySource {
 public:
  void* allocate(int64_t bytes) override {
    void* pointer = mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return pointer == MAP_FAILED ? nullptr : pointer;
  }
  void release(void* pointer, int64_t bytes) override {
    munmap(pointer, static_cast<size_t>(bytes));
  }
  std::string name() const override { return "address space"; }
};

AddressSpace& address_space() {
  static AddressSpace space;
  return space;
}

}  // namespace

AbstractDevice::AbstractDevice()
    : ops_(all_ops().size(), [](Views, Views, const Attrs&, Stream) {}),
      memory_(address_space()) {}

const GpuKernels& AbstractDevice::kernels() const {
  static const GpuKernels table = [] {
    GpuKernels nothing{};
    nothing.cast = [](Views, Views, Stream) {};
    nothing.fill = [](const View&, float, Stream) {};
    nothing.accumulate = [](const View&, const View&, Stream) {};
    nothing.measure_arrays = [](Views, ArrayStatistics*, Stream) {};
    return nothing;
  }();
  return table;
}

void AbstractDevice::copy_out(void* host, const void*, int64_t bytes) {
  if (bytes > 0) std::memset(host, 0, static_cast<size_t>(bytes));
}

}  // namespace quintet
