#pragma once
// How gin values become this folder's types: a function reference such as @preprocessors.rekey
// stands for the object that calling it gives, with its arguments bound in gin.

#include "data/examples/data_source.h"
#include "data/examples/preprocessor.h"
#include "data/metrics/metric.h"
#include "data/preprocessors/denoise.h"
#include "runtime/gin/registry/convert.h"

namespace quintet::data {

/// A mixture whose tasks may be named before they are registered.
struct MixtureSpec {
  std::string name;
  std::vector<gin::Value> tasks;  // names, tasks, or pairs of one and its rate
  gin::Value default_rate = 1.0;  // or a function such as @seqio.mixing_rate_num_examples
  gin::Value sample_fn = {};      // @tf.data.Dataset.sample_from_datasets; none: seqio's default
  std::string defined_at = {};
};

/// The object that a value is or, if it is an uncalled reference, makes.
template <typename T>
T object_or_made(const gin::Value& value, const gin::Where& where, const char* expected) {
  const gin::Callable* callable = value.get_if<gin::Callable>();
  const gin::Value made = callable != nullptr ? (*callable)() : value;
  if constexpr (std::is_class_v<T> && requires { typename T::element_type; }) {
    if (made.is_none()) return nullptr;
    if (auto object = made.object_as<typename T::element_type>()) return object;
  } else {
    if (auto object = made.object_as<T>()) return *object;
  }
  gin::conversion_error(where, expected, value);
}

}  // namespace quintet::data

namespace quintet::gin {

template <typename T>
struct MadeByReference {
  static T from(const Value& value, const Where& where) {
    return data::object_or_made<T>(value, where, Convert<T>::expected().c_str());
  }
};
template <>
struct Convert<data::PreprocessorPtr> : MadeByReference<data::PreprocessorPtr> {
  static std::string expected() { return "a preprocessor, @name"; }
  static Value to(data::PreprocessorPtr value) { return Value::object(std::move(value)); }
};
template <>
struct Convert<data::NoiseFnPtr> : MadeByReference<data::NoiseFnPtr> {
  static std::string expected() { return "a function such as @preprocessors.drop_noise_tokens"; }
  static Value to(data::NoiseFnPtr value) {
    return value ? Value::object(std::move(value)) : Value();
  }
};
template <>
struct Convert<data::NoiseMaskFnPtr> : MadeByReference<data::NoiseMaskFnPtr> {
  static std::string expected() { return "a function such as @preprocessors.iid_noise_mask"; }
  static Value to(data::NoiseMaskFnPtr value) {
    return value ? Value::object(std::move(value)) : Value();
  }
};
template <>
struct Convert<data::MetricFn> : MadeByReference<data::MetricFn> {
  static std::string expected() { return "a metric such as @metrics.sequence_accuracy"; }
  static Value to(data::MetricFn value) {
    return Value::object(std::make_shared<data::MetricFn>(std::move(value)));
  }
};
template <>
struct Convert<data::MetricObject> : MadeByReference<data::MetricObject> {
  static std::string expected() {
    return "a metric object such as @seqio.metrics.PassthroughLegacyMetric.from_metric_fn()";
  }
  static Value to(data::MetricObject value) {
    return Value::object(std::make_shared<data::MetricObject>(std::move(value)));
  }
};
template <>
struct Convert<data::PostprocessFn> : MadeByReference<data::PostprocessFn> {
  static std::string expected() { return "a postprocessor such as @postprocessors.lower_text"; }
  static Value to(data::PostprocessFn value) {
    return Value::object(std::make_shared<data::PostprocessFn>(std::move(value)));
  }
};
template <>
struct Convert<data::FeatureType> {
  static std::string expected() {
    return "'int32', 'int64', 'float32', 'float64', 'bool' or 'string'";
  }
  static data::FeatureType from(const Value& value, const Where& where) {
    if (const auto type = data::feature_type_from_name(as<std::string>(value, where))) return *type;
    conversion_error(where, expected(), value);
  }
  static Value to(data::FeatureType value) { return data::name_of(value); }
};
template <>
struct Convert<data::Length> {
  static std::string expected() { return "a number, or a tuple of a number for each dimension"; }
  static data::Length from(const Value& value, const Where& where) {
    if (value.get_if<int64_t>() != nullptr) return as<int64_t>(value, where);
    const auto sizes = as<std::vector<int64_t>>(value, where);
    if (sizes.empty()) conversion_error(where, expected(), value);
    return {sizes.front(), {sizes.begin() + 1, sizes.end()}};
  }
  static Value to(const data::Length& value) {
    return value.inner.empty() ? Value(value.first) : to_value(value.all());
  }
};
template <>
struct Convert<data::OnBadExample> {
  static std::string expected() { return "'fail', 'skip' or 'skip:N'"; }
  static data::OnBadExample from(const Value& value, const Where& where) {
    if (const auto policy = data::parse_on_bad_example(as<std::string>(value, where)))
      return *policy;
    conversion_error(where, expected(), value);
  }
  static Value to(data::OnBadExample value) {
    if (value == data::OnBadExample::fail) return "fail";
    return value == data::OnBadExample::skip ? "skip" : "skip:" + std::to_string(value.most);
  }
};

}  // namespace quintet::gin
