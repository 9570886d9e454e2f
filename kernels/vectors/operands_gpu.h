#pragma once
// Checks that device kernels make of their operands, and the choice of their element type.

#include "kernels/device.h"
#include "kernels/kernel.h"
#include "kernels/simt/types.cuh"

namespace quintet::QT_GPU {

inline bool is_bf16(const View& view) { return view.dtype == DType::bf16; }

/// Throws a Bug unless `condition`: shapes have been checked against the op's rule before.
inline void expect_shape(bool condition, const char* op, const char* rule) {
  if (!condition) throw Bug(fmt::format("{}: operands do not have the shapes {}", op, rule));
}

/// The dtype in which an op computes; a usage error unless it is float32 or bfloat16.
inline DType activation_dtype(const View& view, const char* op) {
  QT_CHECK(view.dtype == DType::f32 || view.dtype == DType::bf16,
           "{}: operands have dtype {}; on a GPU it must be float32 or bfloat16", op,
           name_of(view.dtype));
  return view.dtype;
}
/// The elements of a view of that dtype; throws a usage error naming the operand for another.
template <typename T>
T* elements(const View& view, const char* op, const char* operand) {
  constexpr DType wanted = std::is_same_v<T, float> ? DType::f32 : DType::bf16;
  QT_CHECK(view.dtype == wanted, "{}: {} has dtype {}, expected {}", op, operand,
           name_of(view.dtype), name_of(wanted));
  return static_cast<T*>(view.pointer);
}
/// The same of an operand that may be absent: null.
template <typename T>
T* optional_elements(const View& view, const char* op, const char* operand) {
  return view.absent() ? nullptr : elements<T>(view, op, operand);
}
/// What result number `result` is added to (`&` in runtime/op/ops.def), of an op of so many operands; null: nothing.
inline const void* addend_of(Views in, size_t operands, size_t result) {
  return operands + result < in.size() ? in[operands + result].pointer : nullptr;
}
/// Puts it, if there is one, where the result will be, for a kernel that goes on from there; whether there is.
inline bool put_addend(const void* addend, const View& result) {
  if (addend != nullptr && addend != result.pointer)
    quintet::Device::current().copy(result.pointer, addend,
                                    result.elements() * size_of(result.dtype));
  return addend != nullptr;
}

/// Calls body(T{}) with the type of `view`'s elements, float or bf16.
template <typename Body>
void for_dtype(const View& view, const char* op, const Body& body) {
  if (activation_dtype(view, op) == DType::f32)
    body(float{});
  else
    body(simt::bf16{});
}

}  // namespace quintet::QT_GPU
