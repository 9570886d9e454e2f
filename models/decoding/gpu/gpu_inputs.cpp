#include "models/decoding/gpu/gpu_inputs.h"

#include <algorithm>

#include "kernels/device.h"

namespace quintet::decoding {

std::pair<std::vector<int32_t>, std::vector<int32_t>> without_padding(
    std::span<const int32_t> tokens, int64_t batch, int64_t length) {
  std::vector<int32_t> order, lengths;
  bool moved = false;
  for (int64_t i = 0; i < batch; ++i) {
    const auto begin = order.size();
    for (int64_t t = 0; t < length; ++t)
      if (tokens[static_cast<size_t>(i * length + t)] > 0)
        order.push_back(static_cast<int32_t>(i * length + t));
    const auto count = order.size() - begin;
    moved |= count > 0 && order.back() != static_cast<int32_t>(i * length + int64_t(count) - 1);
    lengths.push_back(static_cast<int32_t>(std::max<size_t>(count, 1)));
    order.resize(begin + static_cast<size_t>(length), static_cast<int32_t>(i * length));
  }
  if (!moved) order.clear();
  return {order, lengths};
}

Tensor with_axes(const Tensor& x, std::vector<Axis> axes) {
  const Tensor y(Spec{std::move(axes), x.spec().dtype});
  QT_ASSERT(y.bytes() == x.bytes());
  Device::current().copy(y.local().pointer, x.local().pointer, x.bytes());
  return y;
}

}  // namespace quintet::decoding
