#include "data/examples/trim.h"

#include <algorithm>

namespace quintet::data {
namespace {

struct Length {
  int64_t operator()(const auto&) const { return 1; }
  template <typename T>
  int64_t operator()(const std::vector<T>& v) const {
    return static_cast<int64_t>(v.size());
  }
  template <typename T>
  int64_t operator()(const NdArray<T>& v) const {
    return v.shape.front();
  }
};

struct Resize {
  int64_t length;
  void operator()(auto&) const {}
  template <typename T>
  void operator()(std::vector<T>& v) const {
    v.resize(static_cast<size_t>(length));
  }
  template <typename T>
  void operator()(NdArray<T>& v) const {
    v.shape.front() = length;
    int64_t size = 1;
    for (int64_t axis : v.shape) size *= axis;
    v.values.resize(static_cast<size_t>(size));
  }
};

}  // namespace

int64_t length_of(const Value& value) { return std::visit(Length{}, value); }

void trim(Value& value, int64_t length) {
  if (length_of(value) > length) std::visit(Resize{length}, value);
}

void trim_and_pad(Value& value, int64_t length) { std::visit(Resize{length}, value); }

}  // namespace quintet::data
