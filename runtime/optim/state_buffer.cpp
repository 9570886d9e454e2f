#include "runtime/optim/state_buffer.h"

#include <cstring>

#include "runtime/optim/blocks.h"
#include "runtime/optim/optimizer.h"

namespace quintet {

StateBuffer zero_state(DType dtype, std::span<const int64_t> sizes, Device& device) {
  const MemoryScope scope(MemoryKind::kOptimizer);
  StateBuffer state;
  state.device = &device;
  state.view = View::of(static_cast<float*>(nullptr), sizes);
  state.view.dtype = dtype;
  const int64_t bytes = state.view.elements() * size_of(dtype);
  state.buffer = device.memory().allocate(bytes);
  state.view.pointer = state.buffer.get();
  if (!device.is_cpu()) {
    device.fill(state.buffer.get(), 0, bytes);
    return state;
  }
  const auto blocks = cut_into_blocks({bytes}, 1 << 17);
  for_each_block(blocks.size(), [&](size_t i) {
    std::memset(state.buffer.get() + blocks[i].begin, 0,
                static_cast<size_t>(blocks[i].end - blocks[i].begin));
  });
  return state;
}

StateBuffer zero_state_like(const View& like, Device& device, DType dtype) {
  StateBuffer state =
      zero_state(dtype, {like.sizes.data(), static_cast<size_t>(like.rank)}, device);
  state.view.origin = like.origin;
  state.view.global = like.global;
  return state;
}

HostArray host_copy(const StateArray& array) {
  HostArray copy(array.view.dtype,
                 {array.view.sizes.begin(), array.view.sizes.begin() + array.view.rank});
  array.device->copy_out(copy.bytes.data(), array.view.pointer,
                         static_cast<int64_t>(copy.bytes.size()));
  return copy;
}

std::vector<std::string> names_of(const Axes& axes) {
  std::vector<std::string> names;
  for (const Axis& axis : axes) names.push_back(axis.name);
  return names;
}

}  // namespace quintet
