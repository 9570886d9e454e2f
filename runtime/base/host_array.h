#pragma once
// An array in ordinary memory: what data pipelines, checkpoints and fixtures exchange.

#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/dtype.h"

namespace quintet {

struct HostArray {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;  // row-major, shape product x size_of(dtype)

  HostArray() = default;
  /// Zero-filled.
  HostArray(DType type, std::vector<int64_t> sizes) : dtype(type), shape(std::move(sizes)) {
    bytes.resize(static_cast<size_t>(elements() * size_of(dtype)));
  }
  int64_t elements() const {
    int64_t n = 1;
    for (int64_t s : shape) n *= s;
    return n;
  }
  /// The elements as T; throws Bug if T is not the dtype.
  template <typename T>
  std::span<T> as() {
    QT_ASSERT(dtype == dtype_of<std::remove_const_t<T>>());
    return {reinterpret_cast<T*>(bytes.data()), static_cast<size_t>(elements())};
  }
  template <typename T>
  std::span<const T> as() const {
    QT_ASSERT(dtype == dtype_of<std::remove_const_t<T>>());
    return {reinterpret_cast<const T*>(bytes.data()), static_cast<size_t>(elements())};
  }
};

/// Arrays by name, in name order.
using HostArrays = std::map<std::string, HostArray>;

}  // namespace quintet
