#include "data/examples/tf_example.h"

#include <algorithm>
#include <charconv>

#include "data/examples/data_source.h"
#include "data/vocabularies/utf8.h"
#include "runtime/base/check.h"
#include "runtime/base/proto_wire.h"

namespace quintet::data {
namespace {

// Field numbers of tensorflow/core/example/{example,feature}.proto.
constexpr uint32_t kFeatures = 1, kMap = 1, kKey = 1, kMapValue = 2, kValues = 1;
enum Kind : uint32_t { kBytes = 1, kFloats = 2, kIntegers = 3 };
constexpr const char* kKindNames[] = {"no values", "bytes", "floats", "integers"};

/// One feature on the wire: the message of its list (BytesList, FloatList or Int64List).
struct Feature {
  std::string_view name;
  uint32_t kind = 0;  // 0: none set
  std::string_view list;
};

/// Goes through the features of an Example. Of a name that comes twice the last one counts, which
/// those who look features up by name see by taking the last.
template <typename Take>
void each_feature(std::string_view record, const Take& take) {
  for (ProtoReader example(record); example.next();) {
    if (example.field() != kFeatures) continue;
    for (ProtoReader features(example.bytes()); features.next();) {
      if (features.field() != kMap) continue;
      Feature feature;
      for (ProtoReader entry(features.bytes()); entry.next();) {
        if (entry.field() == kKey) feature.name = entry.bytes();
        if (entry.field() != kMapValue) continue;
        for (ProtoReader value(entry.bytes()); value.next();) {
          feature.kind = value.field();
          feature.list = value.bytes();
        }
      }
      QT_CHECK_AS(ExitCode::kData, feature.kind <= kIntegers,
                  "feature '{}': unknown kind of list {}", feature.name, feature.kind);
      take(feature);
    }
  }
}

/// Calls `take` with each integer; they are packed, or (by old writers) one field each.
template <typename Take>
void each_integer(std::string_view list, const Take& take) {
  for (ProtoReader values(list); values.next();) {
    if (values.field() != kValues) continue;
    if (!values.is_bytes()) {
      take(static_cast<int64_t>(values.varint()));
      continue;
    }
    for (ProtoReader packed(values.bytes()); packed.next_packed_varint();)
      take(static_cast<int64_t>(packed.varint()));
  }
}

template <typename Take>
void each_float(std::string_view list, const Take& take) {
  for (ProtoReader values(list); values.next();) {
    if (values.field() != kValues) continue;
    if (!values.is_bytes()) {
      take(values.float32());
      continue;
    }
    const std::string_view packed = values.bytes();
    QT_CHECK_AS(ExitCode::kData, packed.size() % sizeof(float) == 0,
                "protocol buffer: a list of floats of {} bytes", packed.size());
    for (size_t at = 0; at < packed.size(); at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, packed.data() + at, sizeof value);
      take(value);
    }
  }
}

Tokens to_tokens(const Feature& feature) {
  Tokens tokens;
  tokens.reserve(feature.list.size());
  each_integer(feature.list, [&](int64_t value) {
    QT_CHECK_AS(ExitCode::kData, value == static_cast<int32_t>(value),
                "feature '{}': {} does not fit into 32 bits", feature.name, value);
    tokens.push_back(static_cast<int32_t>(value));
  });
  return tokens;
}

std::vector<double> to_numbers(const Feature& feature) {
  std::vector<double> numbers;
  numbers.reserve(feature.list.size() / sizeof(float));
  each_float(feature.list, [&](float value) { numbers.push_back(static_cast<double>(value)); });
  return numbers;
}

std::vector<std::string> to_texts(const Feature& feature, bool check_utf8) {
  std::vector<std::string> texts;
  for (ProtoReader values(feature.list); values.next();) {
    if (values.field() != kValues) continue;
    const size_t bad = check_utf8 ? find_bad_utf8(values.bytes()) : std::string::npos;
    QT_CHECK_AS(
        ExitCode::kData, bad == std::string::npos,
        "feature '{}': byte {} of the text (0x{:02x}) is not UTF-8; declare it as 'bytes' if "
        "it is not text",
        feature.name, bad + 1, static_cast<uint8_t>(values.bytes()[bad]));
    texts.emplace_back(values.bytes());
  }
  return texts;
}

Kind kind_of(std::string_view dtype) {
  if (dtype == "string" || dtype == "bytes") return kBytes;
  if (dtype.starts_with("float")) return kFloats;
  return kIntegers;
}

/// Checks the number of values against a shape.
void check_count(const FeatureSpec& spec, size_t count) {
  int64_t row = 1;  // values of one step of the first axis
  for (size_t axis = 0; axis < spec.shape.size(); ++axis)
    if (axis > 0 || spec.shape[0] >= 0) row *= spec.shape[axis];
  const bool any = !spec.shape.empty() && spec.shape[0] < 0;
  const auto n = static_cast<int64_t>(count);
  QT_CHECK_AS(ExitCode::kData, any ? row > 0 && n % row == 0 : n == row,
              "feature '{}' has {} values, expected {}{}", spec.name, count,
              any ? "a multiple of " : "", row);
}

template <typename T>
Value shaped(const FeatureSpec& spec, std::vector<T> values) {
  check_count(spec, values.size());
  if (spec.shape.empty()) {
    if constexpr (std::is_same_v<T, int32_t>)
      return static_cast<int64_t>(values[0]);
    else
      return std::move(values[0]);
  }
  if constexpr (!std::is_same_v<T, std::string>)
    if (spec.shape.size() > 1) {
      Grid<T> grid{spec.shape, {}};
      int64_t row = 1;
      for (size_t axis = 1; axis < spec.shape.size(); ++axis) row *= spec.shape[axis];
      grid.shape.front() = std::ssize(values) / row;
      grid.values = std::move(values);
      return grid;
    }
  return values;
}

Value to_value(const FeatureSpec& spec, const Feature& feature) {
  const Kind kind = kind_of(spec.dtype);
  QT_CHECK_AS(ExitCode::kData, feature.kind == kind || (feature.kind == 0 && !spec.shape.empty()),
              "feature '{}' holds {}, expected {}", spec.name, kKindNames[feature.kind],
              kKindNames[kind]);
  switch (kind) {
    case kBytes:
      return shaped(spec, to_texts(feature, spec.dtype == "string"));
    case kFloats:
      return shaped(spec, to_numbers(feature));
    default:
      if (!spec.shape.empty()) return shaped(spec, to_tokens(feature));
      int64_t last = 0, count = 0;  // a single value may have all 64 bits
      each_integer(feature.list, [&](int64_t value) { last = value, ++count; });
      check_count(spec, static_cast<size_t>(count));
      return last;
  }
}

void take_all(std::string_view record, Example& out) {
  each_feature(record, [&](const Feature& feature) {
    Value value = Tokens{};
    if (feature.kind == kFloats) value = to_numbers(feature);
    if (feature.kind == kIntegers) value = to_tokens(feature);
    if (feature.kind == kBytes) {
      auto texts = to_texts(feature, false);
      if (texts.size() == 1)
        value = std::move(texts[0]);
      else
        value = std::move(texts);
    }
    out.set(feature.name, std::move(value));
  });
}

void take_listed(const std::vector<FeatureSpec>& specs, std::string_view record, Example& out) {
  constexpr size_t kMost = 64;
  Feature found[kMost];
  std::string names;
  each_feature(record, [&](const Feature& feature) {
    for (size_t i = 0; i < specs.size(); ++i)
      if (specs[i].name == feature.name) found[i] = feature;
  });
  for (size_t i = 0; i < specs.size(); ++i) {
    const FeatureSpec& spec = specs[i];
    if (found[i].kind == 0 && spec.fallback) {
      out.set(spec.name, *spec.fallback);
      continue;
    }
    if (found[i].name.data() == nullptr && (spec.shape.empty() || spec.shape[0] >= 0)) {
      each_feature(record, [&](const Feature& feature) {
        names += (names.empty() ? "" : ", ") + std::string(feature.name);
      });
      fail(ExitCode::kData, "feature '{}' is missing; the example has {}", spec.name,
           names.empty() ? "none" : names);
    }
    out.set(spec.name, to_value(spec, found[i]));
  }
}

struct WriteList {
  ProtoWriter& feature;
  void integers(std::span<const int32_t> values) const {
    ProtoWriter packed;
    for (int32_t value : values) packed.packed_varint(static_cast<uint64_t>(int64_t{value}));
    list(kIntegers, packed.str());
  }
  void operator()(const Tokens& v) const { integers(v); }
  void operator()(int64_t v) const {
    ProtoWriter packed;
    packed.packed_varint(static_cast<uint64_t>(v));
    list(kIntegers, packed.str());
  }
  void operator()(double v) const { (*this)(std::vector<double>{v}); }
  void operator()(const std::vector<double>& v) const {
    const std::vector<float> floats(v.begin(), v.end());
    list(kFloats, {reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float)});
  }
  void operator()(const std::string& v) const {
    ProtoWriter texts;
    texts.bytes(kValues, v);
    feature.bytes(kBytes, texts.str());
  }
  void operator()(const std::vector<std::string>& v) const {
    ProtoWriter texts;
    for (const std::string& text : v) texts.bytes(kValues, text);
    feature.bytes(kBytes, texts.str());
  }
  template <typename T>
  void operator()(const Grid<T>& v) const {
    (*this)(v.values);
  }

 private:
  void list(Kind kind, std::string_view packed) const {
    ProtoWriter values;
    if (!packed.empty()) values.bytes(kValues, packed);
    feature.bytes(kind, values.str());
  }
};

}  // namespace

ExampleParser::ExampleParser(std::vector<FeatureSpec> features) : features_(std::move(features)) {
  QT_CHECK(features_.size() <= 64, "feature_description has {} features, at most 64 are read",
           features_.size());
  for (const FeatureSpec& spec : features_) {
    constexpr std::string_view kKnown[] = {"bool",    "int32",  "int64", "float32",
                                           "float64", "string", "bytes"};
    QT_CHECK(std::find(std::begin(kKnown), std::end(kKnown), spec.dtype) != std::end(kKnown),
             "feature '{}': dtype '{}' is none of {}", spec.name, spec.dtype,
             fmt::join(kKnown, ", "));
    for (size_t axis = 0; axis < spec.shape.size(); ++axis)
      QT_CHECK(spec.shape[axis] > 0 || (axis == 0 && spec.shape[axis] == -1),
               "feature '{}': size {} of axis {}: ragged features are not supported", spec.name,
               spec.shape[axis], axis);
  }
}

void ExampleParser::operator()(std::string_view record, Example& out) const {
  if (features_.empty())
    take_all(record, out);
  else
    take_listed(features_, record, out);
}

std::string serialize_tf_example(const Example& example) {
  ProtoWriter features;
  for (const auto& [name, value] : example.items()) {
    ProtoWriter feature, entry;
    std::visit(WriteList{feature}, value);
    entry.bytes(kKey, name);
    entry.bytes(kMapValue, feature.str());
    features.bytes(kMap, entry.str());
  }
  ProtoWriter message;
  message.bytes(kFeatures, features.str());
  return message.str();
}

FeatureSpec parse_feature_spec(const std::string& name, std::string_view text) {
  const size_t open = text.find('[');
  FeatureSpec spec{.name = name, .dtype = std::string(text.substr(0, open))};
  if (open == std::string_view::npos) return spec;
  QT_CHECK(text.ends_with(']'), "feature '{}': '{}' is not of the form 'int32[?,80]'", name, text);
  std::string_view sizes = text.substr(open + 1, text.size() - open - 2);
  if (sizes.empty()) sizes = "?";
  while (!sizes.empty()) {
    const std::string_view size = sizes.substr(0, sizes.find(','));
    sizes.remove_prefix(std::min(sizes.size(), size.size() + 1));
    int64_t number = -1;
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), number);
    QT_CHECK(
        size == "?" || (error == std::errc() && end == size.data() + size.size() && number > 0),
        "feature '{}': '{}' in '{}' is no size; expected a number or ?", name, size, text);
    spec.shape.push_back(number);
  }
  return spec;
}

}  // namespace quintet::data
