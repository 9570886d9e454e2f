#pragma once
// Numbers as they lie in a device's memory.

#include <cstring>
#include <span>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/dtype.h"

namespace quintet::testing {

/// As float32, rounded to bfloat16, or as whole numbers.
inline std::vector<std::byte> bytes_of(std::span<const float> values, DType dtype) {
  const auto size = static_cast<size_t>(size_of(dtype));
  std::vector<std::byte> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    const bfloat16 half(values[i]);
    const auto whole = static_cast<int32_t>(values[i]);
    const void* from = dtype == DType::bf16  ? static_cast<const void*>(&half)
                       : dtype == DType::i32 ? static_cast<const void*>(&whole)
                                             : &values[i];
    std::memcpy(&bytes[i * size], from, size);
  }
  return bytes;
}

/// What an array of float32 or bfloat16 holds.
inline std::vector<float> floats_in(std::span<const std::byte> bytes, DType dtype) {
  QT_ASSERT(dtype == DType::f32 || dtype == DType::bf16);
  std::vector<float> values(bytes.size() / static_cast<size_t>(size_of(dtype)));
  const void* data = bytes.data();
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = dtype == DType::bf16 ? static_cast<float>(static_cast<const bfloat16*>(data)[i])
                                     : static_cast<const float*>(data)[i];
  return values;
}

}  // namespace quintet::testing
