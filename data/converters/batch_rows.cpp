#include "data/converters/batch_rows.h"

#include <algorithm>
#include <span>

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

DType dtype_of(FeatureType type) {
  switch (type) {
    case FeatureType::int64:
      return DType::i64;
    case FeatureType::float32:
      return DType::f32;
    case FeatureType::float64:
      return DType::f64;
    case FeatureType::boolean:
      return DType::boolean;
    default:
      return DType::i32;
  }
}

FeatureType type_of(DType dtype) {
  for (const FeatureType type :
       {FeatureType::float32, FeatureType::int64, FeatureType::float64, FeatureType::boolean})
    if (dtype_of(type) == dtype) return type;
  return FeatureType::int32;
}

struct ShapeOf {
  std::vector<int64_t> operator()(const auto&) const { return {}; }
  template <typename T>
  std::vector<int64_t> operator()(const std::vector<T>& v) const {
    return {std::ssize(v)};
  }
  template <typename T>
  std::vector<int64_t> operator()(const NdArray<T>& v) const {
    return v.shape;
  }
};

/// `type`: the one to keep it in if it can be; none: int32 or float32.
Format format_of(const Example& example, const std::string& name, std::optional<FeatureType> type) {
  const Value& value = example.at(name);
  std::vector<int64_t> shape = std::visit(ShapeOf{}, value);
  for (const FeatureType each : {type.value_or(FeatureType::int32), FeatureType::int32,
                                 FeatureType::float32, FeatureType::int64})
    if (each != FeatureType::string && is_of_type(value, each))
      return {dtype_of(each), std::move(shape)};
  fail(ExitCode::kData,
       "{}: feature '{}' is {}; batches hold numbers: tokenize it, or leave it out",
       example.where(), name, to_string(value));
}

struct Copy {
  std::span<std::byte> to;
  DType dtype;

  void operator()(const auto&) const {}  // text, which has no format
  void operator()(int64_t v) const { put(std::span(&v, 1)); }
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
    switch (dtype) {
      case DType::i32:
        return put_as<int32_t>(from);
      case DType::i64:
        return put_as<int64_t>(from);
      case DType::f64:
        return put_as<double>(from);
      case DType::boolean:
        return put_as<uint8_t>(from);
      default:
        return put_as<float>(from);
    }
  }
  template <typename T>
  void put(std::span<T> from) const {
    put(std::span<const T>(from));
  }
  template <typename Element, typename T>
  void put_as(std::span<const T> from) const {
    std::transform(from.begin(), from.end(), reinterpret_cast<Element*>(to.data()),
                   [](T v) { return static_cast<Element>(v); });
  }
};

}  // namespace

namespace {

/// Of its first dimension, or of all where the length has all.
bool has_length(const std::vector<int64_t>& shape, const Length& length) {
  return shape.empty() ||
         (shape.front() == length.first &&
          (length.inner.empty() || std::ranges::equal(length.inner, std::span(shape).subspan(1))));
}

}  // namespace

HostArrays arrays_for(const Example& example, const Lengths& lengths, int64_t rows,
                      const FeatureTypes& types) {
  HostArrays arrays;
  for (const auto& [name, length] : lengths) {
    const auto declared = types.find(name);
    Format format = format_of(
        example, name,
        declared == types.end() ? std::nullopt : std::optional<FeatureType>(declared->second));
    QT_CHECK_AS(ExitCode::kData, has_length(format.shape, length),
                "{}: feature '{}' has length {}, expected {}; trim or pad it, or change "
                "task_feature_lengths",
                example.where(), name,
                length.inner.empty() ? fmt::format("{}", format.shape.front())
                                     : fmt::format("({})", fmt::join(format.shape, ", ")),
                length.text());
    format.shape.insert(format.shape.begin(), rows);
    arrays.emplace(name, HostArray(format.dtype, std::move(format.shape)));
  }
  return arrays;
}

void copy_row(const Example& example, int64_t row, HostArrays& arrays) {
  for (auto& [name, array] : arrays) {
    const Format wanted{array.dtype, {array.shape.begin() + 1, array.shape.end()}};
    const Format found = format_of(example, name, type_of(array.dtype));
    QT_CHECK_AS(ExitCode::kData, found == wanted,
                "{}: feature '{}' is {}, the batch's first row has {}", example.where(), name,
                found.text(), wanted.text());
    const size_t bytes = array.bytes.size() / static_cast<size_t>(array.shape.front());
    std::visit(
        Copy{std::span(array.bytes).subspan(bytes * static_cast<size_t>(row), bytes), array.dtype},
        example.at(name));
  }
}

}  // namespace quintet::data
