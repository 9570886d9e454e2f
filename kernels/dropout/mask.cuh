#pragma once
// Dropout on the device: which elements are kept, and what becomes of them. dropout.h has the
// rules.

#include <cmath>

#include "kernels/kernel.h"
#include "kernels/random/row_numbers.cuh"
#include "kernels/random/threefry.cuh"
#include "kernels/simt/host/scratch.h"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU {

struct DropoutRule {
  KeySource key;
  uint32_t threshold = 0;  // keep an element if the upper 23 of its bits are below
  float scale = 1;         // of kept elements: 1 / (1 - rate)
  // Of [experts, 1, columns] whose experts have keys of their own (experts.h): folded into an expert's split of the key.
  bool has_fold = false;
  uint32_t fold = 0;
  RowNumbers numbers;
};

/// Throws usage errors that name `op` for a rate outside [0, 1] or another broadcast_dim than 0,
/// -2.
inline DropoutRule dropout_rule(const char* op, const View& x, const Attrs& attrs) {
  const double rate = attrs.get<double>("rate");
  QT_CHECK(rate >= 0 && rate <= 1, "{}: dropout rate {} must be in [0, 1]", op, rate);
  const auto broadcast_dim = attrs.get_or<int64_t>("broadcast_dim", 0);
  QT_CHECK(broadcast_dim == 0 || (broadcast_dim == -2 && x.rank >= 2),
           "{}: broadcast_dim {} of an array of rank {}; it must be -2 (rank 2 or more) or 0", op,
           broadcast_dim, x.rank);
  DropoutRule rule;
  if (rate > 0) rule.key = KeySource(attrs);
  const auto keep = static_cast<float>(1.0 - rate);
  rule.scale = 1 / keep;
  rule.threshold = static_cast<uint32_t>(std::ceil(static_cast<double>(keep) * 0x1p23));
  rule.has_fold = attrs.has("fold");
  rule.fold = static_cast<uint32_t>(attrs.get_or<int64_t>("fold", 0));
  rule.numbers = RowNumbers(x, broadcast_dim == -2);
  return rule;
}

QT_DEVICE bool is_kept(const DropoutRule& rule, uint64_t number) {
  return threefry_bits(rule.key(), number) >> 9 < rule.threshold;
}
/// A kept element is multiplied by the rounded 1 / (1 - rate), as attention's are: at most one unit in the last place from the
/// CPU's quotient, which takes about ten instructions and a branch.
QT_DEVICE float dropped(float scale, bool kept, float x) { return kept ? x * scale : 0.0f; }
/// Bit i: whether element `first` + i is kept.
template <int kCount>
QT_DEVICE uint32_t keep_bits(const DropoutRule& rule, uint64_t first) {
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    bits |= is_kept(rule, first + static_cast<uint64_t>(i)) ? 1u << i : 0u;
  return bits;
}

/// a / b where both are at most `most`: division of 32 bits is faster.
QT_DEVICE int64_t divide(int64_t a, int64_t b, int64_t most) {
  return most <= UINT32_MAX ? static_cast<uint32_t>(a) / static_cast<uint32_t>(b) : a / b;
}

/// The mask of an array as kernels read it. Where rows share bits these were made once: Threefry
/// takes about 75 instructions an element, more than a memory-bound kernel has time for.
struct DropoutMask {
  DropoutRule rule;
  const uint32_t* words = nullptr;  // [rows / length, words_per_row] if rows share bits
  int64_t words_per_row = 0;
  int64_t length = 1;  // rows that share bits

  /// Bit i < kCount: whether element `column` + i of a row is kept; higher bits are any. kCount
  /// divides 32 and column.
  template <int kCount>
  __device__ uint32_t bits(int64_t row, int64_t column) const {
    if (words == nullptr)
      return keep_bits<kCount>(rule, rule.numbers.first(row) + static_cast<uint64_t>(column));
    return shared_bits(row, column);
  }
  /// The same of rows that share bits, for any number of them within 32.
  __device__ uint32_t shared_bits(int64_t row, int64_t column) const {
    return words_of(row)[column / 32] >> (column % 32);
  }
  /// The words of a row that shares its bits.
  __device__ const uint32_t* words_of(int64_t row) const {
    // Rows are few enough for 32 bits (checked by make_mask), where division is faster.
    const uint32_t group = static_cast<uint32_t>(row) / static_cast<uint32_t>(length);
    return words + group * words_per_row;
  }
};
/// A mask and its memory, which must live until the kernels that read it are queued.
struct StoredDropoutMask {
  simt::Scratch workspace;
  DropoutMask mask;
};
/// The mask of x with the attributes of dropout.h.
StoredDropoutMask make_mask(const char* op, const View& x, const Attrs& attrs, Stream stream);

/// y = dropout(x), or residual + dropout(x) unless residual is absent (a View::none()). All have
/// x's shape and dtype; y may be x or residual.
void apply_dropout(const char* op, const View& x, const View& residual, const View& y,
                   const Attrs& attrs, Stream stream);

}  // namespace quintet::QT_GPU
