#pragma once
// Numbers in memory as float32 or as bfloat16, as gradients may be: optimizers read and write them as floats, and what is
// written is rounded to nearest even.
//
//   const FloatPointer gradient(slot.grad);
//   const float fifth = (gradient + 4).get();

#include <algorithm>

#include "runtime/base/dtype.h"
#include "runtime/base/view.h"

namespace quintet {

struct FloatPointer {
  void* pointer = nullptr;
  bool is_bf16 = false;

  FloatPointer() = default;
  FloatPointer(const float* floats) : pointer(const_cast<float*>(floats)) {}
  /// Null where there is none. Throws Bug if the view has another dtype than these two.
  explicit FloatPointer(const View& view)
      : pointer(view.absent() ? nullptr : view.pointer), is_bf16(view.dtype == DType::bf16) {
    QT_ASSERT(is_bf16 || view.dtype == DType::f32);
  }

  FloatPointer operator+(int64_t elements) const {
    FloatPointer sum = *this;
    sum.pointer = static_cast<char*>(pointer) + elements * (is_bf16 ? 2 : 4);
    return sum;
  }
  // Of the CPU's memory.
  float get() const {
    return is_bf16 ? static_cast<float>(*static_cast<const bfloat16*>(pointer))
                   : *static_cast<const float*>(pointer);
  }
  void set(float value) const {
    if (is_bf16)
      *static_cast<bfloat16*>(pointer) = bfloat16(value);
    else
      *static_cast<float*>(pointer) = value;
  }
  void read(int64_t n, float* to) const {
    if (!is_bf16)
      std::copy_n(static_cast<const float*>(pointer), n, to);
    else
      for (int64_t i = 0; i < n; ++i) to[i] = (*this + i).get();
  }
  void write(int64_t n, const float* from) const {
    if (!is_bf16)
      std::copy_n(from, n, static_cast<float*>(pointer));
    else
      for (int64_t i = 0; i < n; ++i) (*this + i).set(from[i]);
  }
};

}  // namespace quintet
