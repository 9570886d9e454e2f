#include "runtime/tensor/read_together.h"

#include <algorithm>

namespace quintet {

std::vector<HostArray> read_together(const Tensors& tensors) {
  std::vector<HostArray> arrays;
  Device& device = Device::current();
  if (device.is_cpu() || tensors.size() < 2) {
    for (const Tensor& tensor : tensors) arrays.push_back(tensor.to_host());
    return arrays;
  }
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.bytes();
  const Buffer side_by_side = device.memory().allocate(bytes);
  std::byte* to = side_by_side.get();
  for (const Tensor& tensor : tensors) {
    device.copy(to, tensor.raw(), tensor.bytes());
    to += tensor.bytes();
  }
  std::vector<std::byte> all(static_cast<size_t>(bytes));
  device.copy_out(all.data(), side_by_side.get(), bytes);
  auto from = all.begin();
  for (const Tensor& tensor : tensors) {
    HostArray& array = arrays.emplace_back(tensor.spec().dtype, tensor.block().sizes);
    std::copy_n(from, array.bytes.size(), array.bytes.begin());
    from += tensor.bytes();
  }
  return arrays;
}

}  // namespace quintet
