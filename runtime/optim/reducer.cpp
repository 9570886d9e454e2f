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

void DeviceBucket::allocate(Device& device) {
  int64_t all = 0;
  for (const Group& group : groups_)
    for (const Place& place : group.places) all += place.count;
  if (all == 0) return;
  buffer_ = device.memory().allocate(all * size_of(DType::f64));
  auto* at = reinterpret_cast<double*>(buffer_.get());
  for (Group& group : groups_) {
    double* const begin = at;
    for (const Place& place : group.places) {
      *place.pointer = at;
      at += place.count;
    }
    group.values = {begin, at};
  }
}

void DeviceBucket::sum(Reducer* reducer) const {
  for (const Group& group : groups_) {
    if (group.axes.empty() || group.values.empty()) continue;
    QT_ASSERT(reducer != nullptr);
    reducer->sum_on_device(group.values, group.axes);
  }
}

}  // namespace quintet
