#pragma once
// One-dimensional arrays of plain values on the current device, and their values here.

#include <cstring>
#include <span>
#include <vector>

#include "runtime/tensor/tensor.h"

namespace quintet::decoding {

inline Tensor device_array(int64_t n, DType dtype = DType::i32) {
  return Tensor(Spec{{{"n", n}}, dtype});
}

/// Throws Bug if the sizes differ.
template <typename T>
void set_values(const Tensor& to, std::span<const T> values) {
  HostArray array(to.spec().dtype, {to.size(0)});
  QT_ASSERT(array.bytes.size() == values.size_bytes());
  std::memcpy(array.bytes.data(), values.data(), values.size_bytes());
  to.set(array);
}
template <typename T>
std::vector<T> values_of(const Tensor& from) {
  const HostArray array = from.to_host();
  std::vector<T> values(array.bytes.size() / sizeof(T));
  std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  return values;
}

inline int32_t* ints(const Tensor& tensor) { return tensor.local().data<int32_t>(); }
inline float* floats(const Tensor& tensor) { return tensor.local().data<float>(); }

}  // namespace quintet::decoding
