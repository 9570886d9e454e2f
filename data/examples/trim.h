#pragma once
// Cutting and padding features of any kind along their first dimension, or along all.
//
//   trim_and_pad(value, 4)        : [5, 6] -> [5, 6, 0, 0],  [[1.5], [2.5]] -> 4 rows
//   trim_and_pad(value, {1, {2}}) : [[1], [2]] -> [[1, 0]]

#include <concepts>

#include "data/examples/dataset.h"

namespace quintet::data {

/// The length of a feature: of its first dimension, or of each.
struct Length {
  int64_t first = 0;
  std::vector<int64_t> inner = {};  // of the other dimensions; empty: they stay as they are
  Length() = default;
  Length(int64_t length, std::vector<int64_t> others = {})  // NOLINT: most lengths are numbers
      : first(length), inner(std::move(others)) {}
  operator int64_t() const { return first; }  // NOLINT
  bool operator==(const Length&) const = default;
  template <std::integral T>
  bool operator==(T length) const {
    return inner.empty() && first == static_cast<int64_t>(length);
  }
  std::vector<int64_t> all() const;
  std::string text() const;  // "4", or "(3, 4)"
};

/// Size of the first dimension; 1 for a single text or number.
int64_t length_of(const Value& value);
/// At most `length` elements, the first ones. Throws kData if `length` has another number of dimensions.
void trim(Value& value, const Length& length);
/// Exactly `length` elements; new ones are 0. Single texts and numbers stay as they are. Throws as trim does.
void trim_and_pad(Value& value, const Length& length);

}  // namespace quintet::data
