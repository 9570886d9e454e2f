#pragma once
// What a kernel sees of an array: this rank's contiguous, row-major block and where it lies in the
// global array. `origin` and `global` matter to kernels whose result depends on position (relative
// bias, dropout masks, vocabulary-parallel embedding); all others use `sizes` alone.
//
//   const float* x = in[0].data<float>();
//   for (int64_t row = 0; row < in[0].rows(); ++row) ...   // all axes but the last, flattened

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "runtime/base/check.h"
#include "runtime/base/dtype.h"

namespace quintet {

inline constexpr int kMaxRank = 6;

struct View {
  void* pointer = nullptr;  // not owned; null: an optional operand that is absent
  DType dtype = DType::f32;
  int rank = 0;
  std::array<int64_t, kMaxRank> sizes{};   // of the local block
  std::array<int64_t, kMaxRank> origin{};  // of the block in the global array
  std::array<int64_t, kMaxRank> global{};  // sizes of the global array

  bool absent() const { return pointer == nullptr && rank < 0; }
  /// An optional operand that was not given.
  static View none() {
    View v;
    v.rank = -1;
    return v;
  }
  /// An unsharded array: origin 0, global = sizes.
  template <typename T>
  static View of(T* data, std::span<const int64_t> sizes) {
    View v;
    v.pointer = const_cast<std::remove_const_t<T>*>(data);
    v.dtype = dtype_of<std::remove_const_t<T>>();
    v.rank = static_cast<int>(sizes.size());
    std::copy(sizes.begin(), sizes.end(), v.sizes.begin());
    v.global = v.sizes;
    return v;
  }

  /// Elements of the local block (1 for a scalar).
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= sizes[static_cast<size_t>(i)];
    return n;
  }
  /// Size of axis i; negative i counts from the end.
  int64_t size(int i) const { return sizes[static_cast<size_t>(i < 0 ? rank + i : i)]; }
  /// Product of all sizes but the last; the last. rows() * depth() == elements().
  int64_t rows() const {
    int64_t n = 1;
    for (int i = 0; i + 1 < rank; ++i) n *= sizes[static_cast<size_t>(i)];
    return n;
  }
  int64_t depth() const { return rank == 0 ? 1 : size(-1); }

  /// The elements; throws Bug if T is not the dtype.
  template <typename T>
  T* data() const {
    QT_ASSERT(dtype == dtype_of<std::remove_const_t<T>>());
    return static_cast<T*>(pointer);
  }
};

}  // namespace quintet
