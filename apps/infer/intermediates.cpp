#include "apps/infer/intermediates.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "checkpoint/arrays/half.h"

namespace quintet {
namespace {

using NamedValue = std::pair<std::string_view, data::Answer>;

/// Values by paths, of which those in one folder follow each other, as fields in fields.
data::Fields nested(std::span<const NamedValue> values) {
  data::Fields fields;
  for (size_t i = 0; i < values.size();) {
    const size_t slash = values[i].first.find('/');
    const std::string_view name = values[i].first.substr(0, slash);
    if (slash == std::string_view::npos) {
      fields.emplace(name, values[i++].second);
      continue;
    }
    std::vector<NamedValue> inner;
    for (; i < values.size() && values[i].first.starts_with(name) && values[i].first[slash] == '/';
         ++i)
      inner.emplace_back(values[i].first.substr(slash + 1), values[i].second);
    fields.emplace(name, nested(inner));
  }
  return fields;
}

template <typename T>
data::Answer list_of(std::span<const T> values, std::span<const int64_t> shape) {
  data::Answers items;
  const size_t stride = values.size() / static_cast<size_t>(shape[0]);
  for (size_t i = 0; i < static_cast<size_t>(shape[0]); ++i)
    if (shape.size() > 1)
      items.push_back(list_of(values.subspan(i * stride, stride), shape.subspan(1)));
    else if constexpr (std::is_same_v<T, float>)
      items.emplace_back(static_cast<double>(values[i]));
    else
      items.emplace_back(static_cast<int64_t>(values[i]));
  return items;
}

template <typename T>
data::Answer row_of(const HostArray& array, size_t row) {
  const std::span<const T> values = array.as<T>();
  const size_t stride = values.size() / static_cast<size_t>(array.shape[0]);
  return list_of(values.subspan(row * stride, stride), std::span(array.shape).subspan(1));
}

/// What the layers of a scanned stack make, in one array.
void join_layers(const StackSpec& stack, HostArrays& arrays) {
  std::vector<HostArray> parts;
  for (int64_t i = 0; i < stack.num_layers; ++i)
    if (auto node = arrays.extract(stack.layer_scope(i) + "/activations"); !node.empty())
      parts.push_back(std::move(node.mapped()));
  if (parts.empty()) return;
  const std::vector<int64_t>& one = parts.front().shape;  // [batch, length, embed]
  HostArray all(DType::f32, {one[0], one[1], std::ssize(parts), one[2]});
  const auto width = static_cast<size_t>(one[2]);
  for (size_t at = 0; at < static_cast<size_t>(one[0] * one[1]); ++at)
    for (size_t i = 0; i < parts.size(); ++i)
      std::ranges::copy(
          parts[i].as<float>().subspan(at * width, width),
          all.as<float>().begin() + static_cast<std::ptrdiff_t>((at * parts.size() + i) * width));
  arrays.emplace(fmt::format("{0}/{0}/activations", stack.scope()), std::move(all));
}

}  // namespace

Intermediates::Intermediates(const ModelSpec& spec, const HostArrays& batch,
                             const BaseModel::TokenScores& tokens, const SownValues& sown) {
  for (const auto& [name, value] : sown) {
    HostArray array = value.to_host();
    arrays_.emplace(name,
                    array.dtype == DType::i32 ? std::move(array) : as_float32(std::move(array)));
  }
  if (spec.decoder.layer.is_scanned()) {
    if (spec.encoder) join_layers(*spec.encoder, arrays_);
    join_layers(spec.decoder, arrays_);
  }
  const auto weights = batch.find("decoder_loss_weights");
  const bool whole = weights != batch.end() && weights->second.dtype == DType::i32;
  arrays_["decoder/target_tokens"] = batch.at("decoder_target_tokens");
  arrays_["decoder/loss_weights"] = whole ? weights->second : tokens.weights;
  arrays_["decoder/token_scores"] = tokens.scores;
}

data::Fields Intermediates::of_row(size_t row) const {
  std::vector<NamedValue> values;
  for (const auto& [name, array] : arrays_)
    values.emplace_back(name, data::Answers{array.dtype == DType::i32 ? row_of<int32_t>(array, row)
                                                                      : row_of<float>(array, row)});
  return nested(values);
}

}  // namespace quintet
