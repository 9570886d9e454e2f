#include "data/examples/tf_example.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "data/examples/data_source.h"
#include "data/examples/tf_example.pb.h"
#include "data/vocabularies/utf8.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using Kind = tf::Feature::KindCase;
constexpr const char* kKindNames[] = {"no values", "bytes", "floats", "integers"};
constexpr int kValues = tf::Int64List::kValueFieldNumber;  // of every kind of list

void check_wire(bool good) {
  QT_CHECK_AS(ExitCode::kData, good, "not a tf.train.Example: malformed protocol buffer");
}

/// Goes through the fields of a message where it lies. A parsed tf::Example, which copies every text and list, makes
/// reading a cache a tenth slower.
///   for (Fields f(message); f.next();) if (f.number() == 1) name = f.bytes();
class Fields {
 public:
  explicit Fields(std::string_view message)
      : in_(reinterpret_cast<const uint8_t*>(message.data()), static_cast<int>(message.size())) {}
  /// To the next field, past what was not read of this one; false at the end.
  bool next() {
    if (unread_) check_wire(WireFormatLite::SkipField(&in_, tag_));
    tag_ = in_.ReadTag();
    unread_ = tag_ != 0;
    check_wire(unread_ || in_.ConsumedEntireMessage());
    return unread_;
  }
  int number() const { return WireFormatLite::GetTagFieldNumber(tag_); }
  /// Whether the field is a text, message or packed list.
  bool is_bytes() const { return type() == WireFormatLite::WIRETYPE_LENGTH_DELIMITED; }
  std::string_view bytes() {
    uint32_t size = 0;
    const void* begin = "";
    int left = 0;
    check_wire(is_bytes() && in_.ReadVarint32(&size));
    if (size > 0)
      check_wire(in_.GetDirectBufferPointer(&begin, &left) && size <= static_cast<uint32_t>(left));
    in_.Skip(static_cast<int>(size));
    unread_ = false;
    return {static_cast<const char*>(begin), size};
  }
  int64_t integer() {
    uint64_t value = 0;
    check_wire(type() == WireFormatLite::WIRETYPE_VARINT && in_.ReadVarint64(&value));
    unread_ = false;
    return static_cast<int64_t>(value);
  }
  float float32() {
    uint32_t bits = 0;
    check_wire(type() == WireFormatLite::WIRETYPE_FIXED32 && in_.ReadLittleEndian32(&bits));
    unread_ = false;
    return std::bit_cast<float>(bits);
  }

 private:
  WireFormatLite::WireType type() const { return WireFormatLite::GetTagWireType(tag_); }
  CodedInputStream in_;
  uint32_t tag_ = 0;
  bool unread_ = false;
};

/// One feature on the wire: the message of its list.
struct Feature {
  std::string_view name;
  int kind = Kind::KIND_NOT_SET;
  std::string_view list;
};

/// Goes through the features of an Example. Of a name that comes twice the last one counts, which
/// those who look features up by name see by taking the last.
template <typename Take>
void each_feature(std::string_view record, const Take& take) {
  check_wire(std::in_range<int>(record.size()));
  for (Fields example(record); example.next();) {
    if (example.number() != tf::Example::kFeaturesFieldNumber) continue;
    for (Fields features(example.bytes()); features.next();) {
      if (features.number() != tf::Features::kFeatureFieldNumber) continue;
      Feature feature;
      for (Fields entry(features.bytes()); entry.next();) {
        if (entry.number() == tf::Features::Entry::kKeyFieldNumber) feature.name = entry.bytes();
        if (entry.number() != tf::Features::Entry::kValueFieldNumber) continue;
        for (Fields value(entry.bytes()); value.next();) {
          feature.kind = value.number();
          feature.list = value.bytes();
        }
      }
      QT_CHECK_AS(ExitCode::kData, feature.kind <= Kind::kInt64List,
                  "feature '{}': unknown kind of list {}", feature.name, feature.kind);
      take(feature);
    }
  }
}

/// Calls `take` with each integer; they are packed, or (by old writers) one field each.
template <typename Take>
void each_integer(std::string_view list, const Take& take) {
  for (Fields values(list); values.next();) {
    if (values.number() != kValues) continue;
    if (!values.is_bytes()) {
      take(values.integer());
      continue;
    }
    const std::string_view bytes = values.bytes();
    CodedInputStream packed(reinterpret_cast<const uint8_t*>(bytes.data()),
                            static_cast<int>(bytes.size()));
    while (packed.CurrentPosition() < static_cast<int>(bytes.size())) {
      uint64_t value = 0;
      check_wire(packed.ReadVarint64(&value));
      take(static_cast<int64_t>(value));
    }
  }
}

template <typename Take>
void each_float(std::string_view list, const Take& take) {
  for (Fields values(list); values.next();) {
    if (values.number() != kValues) continue;
    if (!values.is_bytes()) {
      take(values.float32());
      continue;
    }
    const std::string_view packed = values.bytes();
    check_wire(packed.size() % sizeof(float) == 0);
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

/// All values, if one needs more than 32 bits.
std::optional<std::vector<int64_t>> to_wide(const Feature& feature) {
  bool is_wide = false;
  std::vector<int64_t> values;
  each_integer(feature.list, [&](int64_t value) {
    is_wide |= value != static_cast<int32_t>(value);
    values.push_back(value);
  });
  if (!is_wide) return std::nullopt;
  return values;
}

std::vector<double> to_numbers(const Feature& feature) {
  std::vector<double> numbers;
  numbers.reserve(feature.list.size() / sizeof(float));
  each_float(feature.list, [&](float value) { numbers.push_back(static_cast<double>(value)); });
  return numbers;
}

std::vector<std::string> to_texts(const Feature& feature, bool check_utf8) {
  std::vector<std::string> texts;
  for (Fields values(feature.list); values.next();) {
    if (values.number() != kValues) continue;
    const std::string_view text = values.bytes();
    const size_t bad = check_utf8 ? find_bad_utf8(text) : std::string::npos;
    QT_CHECK_AS(ExitCode::kData, bad == std::string::npos,
                "feature '{}': byte {} of the text (0x{:02x}) is not UTF-8; declare it as 'bytes' "
                "if it is not text",
                feature.name, bad + 1, static_cast<uint8_t>(text[bad]));
    texts.emplace_back(text);
  }
  return texts;
}

Kind kind_of(std::string_view dtype) {
  if (dtype == "string" || dtype == "bytes") return Kind::kBytesList;
  return dtype.starts_with("float") ? Kind::kFloatList : Kind::kInt64List;
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
      NdArray<T> array{spec.shape, {}};
      int64_t row = 1;
      for (size_t axis = 1; axis < spec.shape.size(); ++axis) row *= spec.shape[axis];
      array.shape.front() = std::ssize(values) / row;
      array.values = std::move(values);
      return array;
    }
  return values;
}

Value to_value(const FeatureSpec& spec, const Feature& feature) {
  const Kind kind = kind_of(spec.dtype);
  QT_CHECK_AS(ExitCode::kData,
              feature.kind == kind || (feature.kind == Kind::KIND_NOT_SET && !spec.shape.empty()),
              "feature '{}' holds {}, expected {}", spec.name, kKindNames[feature.kind],
              kKindNames[kind]);
  if (kind == Kind::kBytesList) return shaped(spec, to_texts(feature, spec.dtype == "string"));
  if (kind == Kind::kFloatList) return shaped(spec, to_numbers(feature));
  if (!spec.shape.empty()) {
    if (spec.dtype == "int64")
      if (auto values = to_wide(feature)) return shaped(spec, std::move(*values));
    return shaped(spec, to_tokens(feature));
  }
  int64_t last = 0, count = 0;  // a single value may have all 64 bits
  each_integer(feature.list, [&](int64_t value) { last = value, ++count; });
  check_count(spec, static_cast<size_t>(count));
  return last;
}

void take_all(std::string_view record, Example& out) {
  each_feature(record, [&](const Feature& feature) {
    Value value = Tokens{};
    if (feature.kind == Kind::kFloatList) value = to_numbers(feature);
    if (feature.kind == Kind::kInt64List) value = to_tokens(feature);
    if (feature.kind == Kind::kBytesList) {
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
  tf::Feature& feature;
  void operator()(const Tokens& v) const {
    feature.mutable_int64_list()->mutable_value()->Add(v.begin(), v.end());
  }
  void operator()(const std::vector<int64_t>& v) const {
    feature.mutable_int64_list()->mutable_value()->Add(v.begin(), v.end());
  }
  void operator()(int64_t v) const { feature.mutable_int64_list()->add_value(v); }
  void operator()(double v) const {
    feature.mutable_float_list()->add_value(static_cast<float>(v));
  }
  void operator()(const std::vector<double>& v) const {
    tf::FloatList& list = *feature.mutable_float_list();
    for (const double number : v) list.add_value(static_cast<float>(number));
  }
  void operator()(const std::string& v) const { feature.mutable_bytes_list()->add_value(v); }
  void operator()(const std::vector<std::string>& v) const {
    tf::BytesList& list = *feature.mutable_bytes_list();
    for (const std::string& text : v) list.add_value(text);
  }
  template <typename T>
  void operator()(const NdArray<T>& v) const {
    (*this)(v.values);
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
  tf::Example message;
  for (const auto& [name, value] : example.items()) {
    tf::Features::Entry& entry = *message.mutable_features()->add_feature();
    entry.set_key(name);
    std::visit(WriteList{*entry.mutable_value()}, value);
  }
  message.mutable_features();  // written even if it is empty
  return message.SerializeAsString();
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
