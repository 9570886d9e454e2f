#include "data/converters/batch_rows.h"

#include <algorithm>
#include <span>

#include "data/examples/trim.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

/// A row as a batch keeps it.
struct Format {
  DType dtype;
  std::vector<int64_t> shape;
  bool operator==(const Format&) const = default;
  std::string text() const {
    return fmt::format("{} [{}]", name_of(dtype), fmt::join(shape, ", "));
  }
};

template <typename T>
constexpr DType kArrayType = std::is_floating_point_v<T> ? DType::f32 : DType::i32;

struct FormatOf {
  std::optional<Format> operator()(const auto&) const { return std::nullopt; }  // text
  std::optional<Format> operator()(int64_t) const { return Format{DType::i32, {}}; }
  std::optional<Format> operator()(double) const { return Format{DType::f32, {}}; }
  template <typename T>
  requires std::is_arithmetic_v<T> std::optional<Format>
  operator()(const std::vector<T>& v) const {
    return Format{kArrayType<T>, {static_cast<int64_t>(v.size())}};
  }
  template <typename T>
  std::optional<Format> operator()(const NdArray<T>& v) const {
    return Format{kArrayType<T>, v.shape};
  }
};

Format format_of(const Example& example, const std::string& name) {
  const Value& value = example.at(name);
  const auto format = std::visit(FormatOf{}, value);
  QT_CHECK_AS(ExitCode::kData, format.has_value(),
              "{}: feature '{}' is {}; batches hold numbers: tokenize it, or leave it out",
              example.where(), name, to_string(value));
  return *format;
}

struct Copy {
  std::span<std::byte> to;

  void operator()(const auto&) const {}  // text, which has no format
  void operator()(int64_t v) const {
    QT_CHECK_AS(ExitCode::kData, v == static_cast<int32_t>(v), "{} does not fit in int32", v);
    put(std::span(&v, 1));
  }
  void operator()(double v) const { put(std::span(&v, 1)); }
  template <typename T>
  requires std::is_arithmetic_v<T>
  void operator()(const std::vector<T>& v) const { put(std::span(v)); }
  template <typename T>
  void operator()(const NdArray<T>& v) const {
    put(std::span(v.values));
  }

 private:
  template <typename T>
  void put(std::span<const T> from) const {
    using Element = std::conditional_t<kArrayType<T> == DType::f32, float, int32_t>;
    std::transform(from.begin(), from.end(), reinterpret_cast<Element*>(to.data()),
                   [](T v) { return static_cast<Element>(v); });
  }
  template <typename T>
  void put(std::span<T> from) const {
    put(std::span<const T>(from));
  }
};

}  // namespace

HostArrays arrays_for(const Example& example, const Lengths& lengths, int64_t rows) {
  HostArrays arrays;
  for (const auto& [name, length] : lengths) {
    Format format = format_of(example, name);
    const int64_t found = length_of(example.at(name));
    QT_CHECK_AS(ExitCode::kData, found == length || format.shape.empty(),
                "{}: feature '{}' has length {}, expected {}; trim or pad it, or change "
                "task_feature_lengths",
                example.where(), name, found, length);
    format.shape.insert(format.shape.begin(), rows);
    arrays.emplace(name, HostArray(format.dtype, std::move(format.shape)));
  }
  return arrays;
}

void copy_row(const Example& example, int64_t row, HostArrays& arrays) {
  for (auto& [name, array] : arrays) {
    const Format wanted{array.dtype, {array.shape.begin() + 1, array.shape.end()}};
    const Format found = format_of(example, name);
    QT_CHECK_AS(ExitCode::kData, found == wanted,
                "{}: feature '{}' is {}, the batch's first row has {}", example.where(), name,
                found.text(), wanted.text());
    const size_t bytes = array.bytes.size() / static_cast<size_t>(array.shape.front());
    std::visit(Copy{std::span(array.bytes).subspan(bytes * static_cast<size_t>(row), bytes)},
               example.at(name));
  }
}

}  // namespace quintet::data
