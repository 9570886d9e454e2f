#include "apps/export/onnx/weights.h"

#include <cstring>

#include "checkpoint/arrays/half.h"
#include "checkpoint/finite.h"
#include "kernels/attention/buckets.h"
#include "runtime/base/check.h"

namespace quintet::onnx {

using decoding::QuantizedParameter;

QuantizedParameter Loader::read(const std::string& name, const std::vector<int64_t>& shape) const {
  return decoding::quantized_parameter(spec_, name, source_(name), WeightType::f32, shape);
}

std::string Loader::add(const std::string& name, HostArray values) const {
  if (dtype_ == DType::f32) return graph_.tensor(name, values);
  values = rounded(std::move(values), dtype_);
  QT_CHECK_AS(ExitCode::kData, count_not_finite(dtype_, values.bytes) == 0,
              "parameter {}: holds numbers too large for {}; use bfloat16 or float32", name,
              name_of(dtype_));
  return graph_.op("Cast", {graph_.tensor(name, values)}, {{"to", int64_t{kFloat}}});
}

std::string Loader::parameter(const std::string& name, const std::vector<int64_t>& shape) const {
  std::string& value = added_[name];
  if (value.empty()) value = add(name, read(name, shape).values);
  return value;
}

std::vector<std::string> Loader::stack(const std::string& name,
                                       const std::vector<int64_t>& shape) const {
  const QuantizedParameter all = read(name, shape);
  std::vector<std::string> matrices;
  for (int64_t i = 0; i < shape[0]; ++i) {
    HostArray one(all.values.dtype, {shape[1], shape[2]});
    std::memcpy(one.bytes.data(), all.values.bytes.data() + i * std::ssize(one.bytes),
                one.bytes.size());
    matrices.push_back(add(fmt::format("{}/{}", name, i), std::move(one)));
  }
  return matrices;
}

std::string Loader::vector(const std::string& name, int64_t size) const {
  return parameter(name, {size});
}

std::string Loader::matrix(const std::string& name, int64_t rows, int64_t columns) const {
  return parameter(name, {rows, columns});
}

std::vector<std::string> Loader::projections(const std::string& scope,
                                             std::initializer_list<const char*> parts,
                                             decoding::ReadBy) const {
  const LayerConfig& c = spec_.decoder.layer;
  std::vector<std::string> names;
  for (const std::string part : parts)
    names.push_back(matrix(fmt::format("{}/{}/kernel", scope, part), c.emb_dim,
                           decoding::is_shared(c, part) ? c.head_dim : c.joined_kv()));
  return names;
}

std::vector<Mlp> Loader::mlps(
    const std::string& scope, const std::vector<std::string>& activations,
    const std::function<std::vector<std::string>(const std::string&, bool out)>& matrices) const {
  std::vector<Mlp> mlps;
  for (const std::string& out : matrices(scope + "/wo/kernel", true))
    mlps.push_back({.in = {}, .out = out, .activations = {}});
  const bool gated = activations.size() == 2;
  for (size_t i = 0; i < activations.size(); ++i) {
    const auto in =
        matrices(gated ? fmt::format("{}/wi_{}/kernel", scope, i) : scope + "/wi/kernel", false);
    for (size_t m = 0; m < mlps.size(); ++m) {
      mlps[m].in.push_back(in[m]);
      mlps[m].activations.push_back(activation_from_name(activations[i]));
    }
  }
  return mlps;
}

Mlp Loader::mlp(const std::string& scope, int64_t width,
                const std::vector<std::string>& activations) const {
  const int64_t embed = spec_.emb_dim();
  return mlps(scope, activations,
              [&](const std::string& name, bool out) {
                return std::vector{out ? matrix(name, width, embed) : matrix(name, embed, width)};
              })
      .front();
}

Experts Loader::experts(const std::string& scope, const MoeConfig& moe) const {
  const int64_t embed = spec_.emb_dim(), count = moe.num_experts, width = moe.mlp_dim;
  const std::string router = scope + "/router/router_weights/w/";
  return {
      .router = matrix(router + "kernel", embed, count),
      .router_bias = moe.router.use_bias ? vector(router + "bias", count) : "",
      .moe = moe,
      .experts = mlps(scope + "/expert", moe.activations, [&](const std::string& name, bool out) {
        return out ? stack(name, {count, width, embed}) : stack(name, {count, embed, width});
      })};
}

std::string Loader::relative_bias(const std::string& name, const StackSpec& stack) const {
  const LayerConfig& c = stack.layer;
  const BucketRule rule{
      .bidirectional = stack.is_encoder, .buckets = c.num_buckets, .max_distance = c.max_distance};
  const HostArray table = read(name, {c.num_heads, c.num_buckets}).values;
  const std::vector<int32_t> buckets = rule.diagonals(-c.max_distance, 2 * c.max_distance + 1);
  const auto distances = static_cast<int64_t>(buckets.size());
  HostArray by_distance(DType::f32, {c.num_heads, distances});
  for (int64_t head = 0; head < c.num_heads; ++head)
    for (int64_t i = 0; i < distances; ++i)
      by_distance.as<float>()[static_cast<size_t>(head * distances + i)] =
          table.as<float>()[static_cast<size_t>(head * c.num_buckets +
                                                buckets[static_cast<size_t>(i)])];
  return add(name, std::move(by_distance));
}

}  // namespace quintet::onnx
