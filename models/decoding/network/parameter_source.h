#pragma once
// Where generation takes a network's parameters from: a model, a checkpoint, a test's arrays.

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "runtime/base/view.h"

namespace quintet::decoding {

/// A parameter in float32, or as models/decoding/network/quantized_parameters.h makes it.
struct StoredParameter {
  View values;
  const float* scales = nullptr;  // int8: one a column, of tied embeddings a row
  // Of a part of a matrix, of its rows and columns, in elements; else it is dense.
  std::optional<std::array<int64_t, 2>> strides = {};

  StoredParameter(const View& v, const float* s = nullptr) : values(v), scales(s) {}  // NOLINT
};
/// A part of a matrix: rows (axis 0) or columns (axis 1) [begin, begin + count).
struct ParameterPart {
  int axis = 0;
  int64_t begin = 0, count = 0;
};

/// Parameters by name, whole, and some sources give parts of a matrix, or the matrices of a stack one at a time, so
/// that no copy of all of it is made. A view need only last until the next call.
class ParameterSource {
 public:
  using Whole = std::function<StoredParameter(const std::string& name)>;
  using Part = std::function<StoredParameter(const std::string& name, const ParameterPart& part)>;
  using UseOne = std::function<void(int64_t index, const StoredParameter& matrix)>;
  /// Calls `use` with each matrix of a stack [matrices, rows, columns], in any order.
  using Each = std::function<void(const std::string& name, const UseOne& use)>;

  ParameterSource() = default;
  template <typename Function>
  requires std::is_invocable_v<Function, const std::string&> ParameterSource(
      Function whole, Part part = {}, Each each = {})  // NOLINT: a function is a source
      : whole_(std::move(whole)), part_(std::move(part)), each_(std::move(each)) {}

  explicit operator bool() const { return static_cast<bool>(whole_); }
  StoredParameter operator()(const std::string& name) const { return whole_(name); }
  bool has_parts() const { return static_cast<bool>(part_); }
  bool has_each() const { return static_cast<bool>(each_); }
  StoredParameter part(const std::string& name, const ParameterPart& which) const {
    return part_(name, which);
  }
  void each(const std::string& name, const UseOne& use) const { each_(name, use); }

 private:
  Whole whole_;
  Part part_;
  Each each_;
};

}  // namespace quintet::decoding
