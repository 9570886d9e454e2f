#include "runtime/optim/reducer.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace quintet {

void Bucket::add(std::span<double> values, const MeshAxes& axes) {
  if (axes.empty() || values.empty()) return;
  auto found = std::find_if(groups_.begin(), groups_.end(),
                            [&](const auto& group) { return group.first == axes; });
  if (found == groups_.end()) found = groups_.insert(groups_.end(), {axes, {}});
  found->second.push_back(values);
}

void Bucket::reduce(Reducer* reducer,
                    void (Reducer::*how)(std::span<double>, const MeshAxes&)) const {
  for (const auto& [axes, parts] : groups_) {
    QT_ASSERT(reducer != nullptr);
    if (reducer->is_abstract()) {
      size_t count = 0;
      for (const auto& part : parts) count += part.size();
      (reducer->*how)({static_cast<double*>(nullptr), count}, axes);
      continue;
    }
    std::vector<double> all;
    for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
    (reducer->*how)(all, axes);
    auto from = all.begin();
    for (const auto& part : parts) {
      std::copy_n(from, part.size(), part.begin());
      from += static_cast<int64_t>(part.size());
    }
  }
}

void DeviceBucket::add(double** place, int64_t count, const MeshAxes& axes) {
  auto found = std::find_if(groups_.begin(), groups_.end(),
                            [&](const Group& group) { return group.axes == axes; });
  if (found == groups_.end()) found = groups_.insert(groups_.end(), Group{axes, {}});
  found->places.push_back({place, count});
}

int64_t DeviceBucket::Group::count() const {
  int64_t count = 0;
  for (const Place& place : places) count += place.count;
  return count;
}

int64_t DeviceBucket::bytes() const {
  int64_t bytes = 0;
  for (const Group& group : groups_) bytes += group.count() * size_of(DType::f64);
  return bytes;
}

void DeviceBucket::allocate(Device& device) {
  if (bytes() == 0) return;
  buffer_ = device.memory().allocate(bytes());
  auto* at = reinterpret_cast<double*>(buffer_.get());
  for (Group& group : groups_) {
    group.values = at;
    for (const Place& place : group.places) {
      *place.pointer = at;
      at += place.count;
    }
  }
}

void DeviceBucket::sum(Reducer* reducer) const {
  for (const Group& group : groups_) {
    const auto count = static_cast<size_t>(group.count());
    if (group.axes.empty() || count == 0) continue;
    QT_ASSERT(reducer != nullptr && (group.values != nullptr || reducer->is_abstract()));
    reducer->sum_on_device({group.values, count}, group.axes);
  }
}

}  // namespace quintet
