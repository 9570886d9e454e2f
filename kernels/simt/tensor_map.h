#pragma once
// Tensor maps: what the TMA engine knows of an array in global memory. Made on the host, passed to
// the kernel as `const __grid_constant__ simt::TensorMap map`. CUDA Driver API, "Tensor Map Object
// Management": cuTensorMapEncodeTiled.
//
//   // x [rows, columns] of bf16, tiles of 64 x 64 with 128-byte swizzle. Axes go from the fastest.
//   auto map =
//       simt::make_tensor_map<bf16>(x, {columns, rows}, {columns * 2}, {64, 64}, Swizzle::k128);

#include <initializer_list>

#include "kernels/simt/swizzle.cuh"
#include "kernels/simt/types.cuh"

namespace quintet::QT_GPU::simt {

#ifdef QUINTET_EMULATE
struct TensorMap {
  char* base;
  int rank;
  int element;  // bytes
  int kind;     // of elements, for reductions
  int64_t sizes[5];
  int64_t strides[5];  // bytes
  int box[5];
  Swizzle swizzle;
};
#else
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};
#endif

enum class TensorElement { kBf16, kHalf, kFloat, kInt32, kInt8 };

/// `sizes` and `box` in elements from the fastest axis (at most 5); `strides` in bytes, of all axes
/// but the fastest. Throws Bug unless: base and strides are multiples of 16 bytes; box sizes are 1
/// to 256; a row of the box is a multiple of 16 bytes and, with a swizzle, exactly its span.
TensorMap make_tensor_map_of(TensorElement element, const void* base,
                             std::initializer_list<int64_t> sizes,
                             std::initializer_list<int64_t> strides, std::initializer_list<int> box,
                             Swizzle swizzle);

template <typename T>
TensorMap make_tensor_map(const T* base, std::initializer_list<int64_t> sizes,
                          std::initializer_list<int64_t> strides, std::initializer_list<int> box,
                          Swizzle swizzle = Swizzle::kNone) {
  constexpr TensorElement kElement = std::is_same_v<T, bf16>      ? TensorElement::kBf16
                                     : std::is_same_v<T, half>    ? TensorElement::kHalf
                                     : std::is_same_v<T, float>   ? TensorElement::kFloat
                                     : std::is_same_v<T, int32_t> ? TensorElement::kInt32
                                                                  : TensorElement::kInt8;
  static_assert(sizeof(T) == 1 || kElement != TensorElement::kInt8,
                "make_tensor_map: element type");
  return make_tensor_map_of(kElement, base, sizes, strides, box, swizzle);
}

}  // namespace quintet::QT_GPU::simt
