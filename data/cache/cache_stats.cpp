#include "data/cache/cache_stats.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/check.h"

namespace quintet::data {
namespace {

// The format's version, which decides how seqio reads integers.
constexpr const char* kSeqioVersion = "0.0.20";

int64_t count_tokens(const Tokens& tokens, const Vocabulary& vocabulary) {
  return std::count_if(tokens.begin(), tokens.end(), [&](int32_t id) {
    return id != vocabulary.pad_id() && id != vocabulary.eos_id();
  });
}

int64_t count_characters_of(std::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

const char* integer(bool wide) { return wide ? "int64" : "int32"; }

}  // namespace

CacheStats::Form CacheStats::form_of(const Value& value) {
  const auto of = [](const auto& v) -> Form {
    using T = std::remove_cvref_t<decltype(v)>;
    if constexpr (std::is_same_v<T, int64_t>)
      return {integer(v != static_cast<int32_t>(v)), {}};
    else if constexpr (std::is_same_v<T, double>)
      return {"float32", {}};
    else if constexpr (std::is_same_v<T, std::string>)
      return {"string", {}};
    else if constexpr (requires { v.shape; }) {  // the first dimension may differ
      Form form{std::is_same_v<T, NdArray<double>> ? "float32"
                                                   : integer(std::is_same_v<T, NdArray<int64_t>>),
                v.shape};
      form.shape.front() = -1;
      return form;
    } else {
      return {std::is_same_v<T, Tokens>                 ? integer(false)
              : std::is_same_v<T, std::vector<int64_t>> ? integer(true)
              : std::is_same_v<T, std::vector<double>>  ? "float32"
                                                        : "string",
              {-1}};
    }
  };
  return std::visit(of, value);
}

void CacheStats::add_form(const std::string& name, const Form& form) {
  const auto [at, is_new] = forms_.emplace(name, form);
  if (at->second == form) return;
  Form merged = form;
  merged.dtype = at->second.dtype;
  const bool integers = at->second.dtype.starts_with("int") && form.dtype.starts_with("int");
  QT_CHECK_AS(ExitCode::kData, integers && merged == at->second,
              "feature '{}' is {} of rank {} here, {} of rank {} in other examples", name,
              form.dtype, form.shape.size(), at->second.dtype, at->second.shape.size());
  at->second.dtype = "int64";
}

void CacheStats::add(const Example& example, const Features& output_features,
                     bool count_characters) {
  for (const auto& [name, value] : example.items()) {
    QT_CHECK_AS(ExitCode::kData, examples_ == 0 || forms_.contains(name),
                "feature '{}' is not in the examples before", name);
    Form form = form_of(value);
    const Feature* feature = find_feature(output_features, name);
    // Of texts that are not tokenized yet the declared type is that of their ids.
    if (feature != nullptr && feature->type != FeatureType::int32 &&
        is_of_type(value, feature->type))
      form.dtype = name_of(feature->type);
    add_form(name, form);
  }
  for (const auto& [name, form] : forms_)
    QT_CHECK_AS(ExitCode::kData, example.has(name),
                "feature '{}' is missing, other examples have it", name);
  ++examples_;
  for (const auto& [name, feature] : output_features) {
    const Value* value = example.find(name);
    if (value == nullptr) continue;
    if (const auto* tokens = std::get_if<Tokens>(value)) {
      const int64_t count = count_tokens(*tokens, *feature.vocabulary);
      sums_[name + "_tokens"] += count;
      int64_t& most = maxima_[name + "_max_tokens"];
      most = std::max(most, count);
      const bool pieces =
          dynamic_cast<const SentencePieceVocabulary*>(feature.vocabulary.get()) != nullptr;
      if (count_characters && pieces)
        sums_[name + "_chars"] += count_characters_of(feature.vocabulary->decode(*tokens));
    } else if (const auto* text = std::get_if<std::string>(value);
               text != nullptr && count_characters) {
      sums_[name + "_chars"] += count_characters_of(*text);
    }
  }
}

void CacheStats::add(const CacheStats& other) {
  if (other.examples_ == 0) return;
  const bool first = examples_ == 0;
  for (const auto& [name, form] : other.forms_) {
    QT_CHECK_AS(ExitCode::kData, first || forms_.contains(name),
                "feature '{}' is in some examples only", name);
    add_form(name, form);
  }
  QT_CHECK_AS(ExitCode::kData, forms_.size() == other.forms_.size(),
              "some examples have {} features, others {}", forms_.size(), other.forms_.size());
  examples_ += other.examples_;
  for (const auto& [name, count] : other.sums_) sums_[name] += count;
  for (const auto& [name, count] : other.maxima_) maxima_[name] = std::max(maxima_[name], count);
}

std::string CacheStats::info_json(int64_t num_shards) const {
  nlohmann::json features = nlohmann::json::object();
  for (const auto& [name, form] : forms_) {
    nlohmann::json shape = nlohmann::json::array();
    for (int64_t size : form.shape)
      shape.push_back(size < 0 ? nlohmann::json() : nlohmann::json(size));
    features[name] = {{"dtype", form.dtype}, {"shape", std::move(shape)}};
  }
  const nlohmann::json info = {
      {"features", features}, {"num_shards", num_shards}, {"seqio_version", kSeqioVersion}};
  return info.dump(2) + "\n";
}

std::string CacheStats::stats_json() const {
  nlohmann::json stats(sums_);
  for (const auto& [name, count] : maxima_) stats[name] = count;
  stats["examples"] = examples_;
  return stats.dump(2) + "\n";
}

nlohmann::json CacheStats::to_json() const {
  nlohmann::json forms = nlohmann::json::object();
  for (const auto& [name, form] : forms_)
    forms[name] = {{"dtype", form.dtype}, {"shape", form.shape}};
  return {{"examples", examples_}, {"sums", sums_}, {"maxima", maxima_}, {"features", forms}};
}

CacheStats CacheStats::from_json(const Json& json) {
  CacheStats stats;
  stats.examples_ = json["examples"].as_int();
  for (const auto& [name, count] : json["sums"].members()) stats.sums_[name] = count.as_int();
  for (const auto& [name, count] : json["maxima"].members()) stats.maxima_[name] = count.as_int();
  for (const auto& [name, form] : json["features"].members())
    stats.forms_[name] = {form["dtype"].as_string(), form["shape"].as_ints()};
  return stats;
}

}  // namespace quintet::data
