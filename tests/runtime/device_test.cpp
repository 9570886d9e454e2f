// What devices say of themselves, and the one that computes nothing.

#include "tests/harness/device.h"

#include <array>
#include <cstring>

#include "kernels/gpu/gpu_kernels.h"
#include "runtime/abstract/abstract_device.h"
#include "runtime/op/op.h"

namespace quintet::testing {
namespace {

TEST(Devices, RecordExactlyWhenTheySayThatTheyDo) {
  AbstractDevice abstract;
  for (Device* device : {&Device::current(), &Device::cpu(), static_cast<Device*>(&abstract)}) {
    SCOPED_TRACE(device->description());
    if (device->can_record())
      EXPECT_NE(device->record([] {}), nullptr);
    else
      EXPECT_THROW(device->record([] {}), NotRecordable);
  }
}

TEST(Devices, ReadBackWhatWasWrittenWhereMemoryIsReal) {
  AbstractDevice abstract;
  for (Device* device : {&Device::current(), &Device::cpu(), static_cast<Device*>(&abstract)}) {
    SCOPED_TRACE(device->description());
    const Buffer buffer = device->memory().allocate(sizeof(int));
    int value = 7;
    device->copy_in(buffer.get(), &value, sizeof value);
    value = 1;
    device->copy_out(&value, buffer.get(), sizeof value);
    EXPECT_EQ(value, device->memory_is_real() ? 7 : 0);
  }
}

TEST(Devices, AreCurrentForAThreadWithinAScope) {
  Device& outer = Device::current();
  AbstractDevice abstract;
  {
    const Device::Use use(abstract);
    EXPECT_EQ(&Device::current(), &abstract);
    {
      const Device::Use nested(Device::cpu());
      EXPECT_EQ(&Device::current(), &Device::cpu());
    }
    EXPECT_EQ(&Device::current(), &abstract);
  }
  EXPECT_EQ(&Device::current(), &outer);
}

TEST(AbstractDevice, HasEveryKernel) {
  const AbstractDevice device;
  EXPECT_EQ(device.ops().size(), all_ops().size());
  for (const Kernel kernel : device.ops()) EXPECT_NE(kernel, nullptr);
  std::array<void (*)(), sizeof(GpuKernels) / sizeof(void (*)())> kernels;
  static_assert(sizeof kernels == sizeof(GpuKernels));
  std::memcpy(&kernels, &device.kernels(), sizeof kernels);
  for (const auto kernel : kernels) EXPECT_NE(kernel, nullptr);
  device.kernels().advance_samples({}, {});
  device.kernels().update_adam({}, {}, {}, nullptr, {});
}

}  // namespace
}  // namespace quintet::testing
