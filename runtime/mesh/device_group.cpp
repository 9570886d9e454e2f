#include "runtime/mesh/device_group.h"

#include <numeric>

#include "kernels/device.h"

namespace quintet {

Group device_group(Comm& comm, int first, int count) {
  std::vector<int> members(static_cast<size_t>(count));
  std::iota(members.begin(), members.end(), first);
  const Group devices = Group(&comm, std::move(members), "ranks of a model").out_of_step();
  Device& device = Device::current();
  const Buffer word = device.memory().allocate(sizeof(float));
  device.fill(word.get(), 0, sizeof(float));
  devices.all_reduce(word.get(), 1, DType::f32).wait();
  device.synchronize();
  return devices;
}

}  // namespace quintet
