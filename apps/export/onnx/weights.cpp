#include "apps/export/onnx/weights.h"

#include <cstring>

#include "apps/model/weights/stored_parameters.h"
#include "checkpoint/arrays/half.h"
#include "checkpoint/finite.h"
#include "kernels/attention/buckets.h"
#include "runtime/base/check.h"

namespace quintet::onnx {

using decoding::QuantizedParameter;

QuantizedParameter Loader::read(const std::string& name, const std::vector<int64_t>& shape) const {
  return decoding::quantized_parameter(spec_, name, source_(name), weights_, shape);
}

std::string Loader::add(const std::string& name, QuantizedParameter parameter) const {
  HostArray& values = parameter.values;
  // What a factor has been divided out of is no longer a number of 16 bits: it would be rounded twice.
  const DType dtype = decoding::factor_of(spec_, name) ? DType::f32 : dtype_;
  if (dtype != DType::f32) values = rounded(std::move(values), dtype);
  QT_CHECK_AS(ExitCode::kData, dtype == DType::f32 || count_not_finite(dtype, values.bytes) == 0,
              "parameter {}: holds numbers that are not finite or too large for {}; use bfloat16 "
              "or float32",
              name, name_of(dtype));
  const std::string stored = graph_.tensor(name, values);
  if (values.dtype == DType::f32) return stored;
  const std::string wide = graph_.op("Cast", {stored}, {{"to", int64_t{kFloat}}});
  HostArray& scales = parameter.scales;
  if (scales.elements() == 0) return wide;
  // Not DequantizeLinear: onnxruntime then multiplies with activations of 8 bits, too, and gives other ids.
  if (decoding::is_token_table(name)) scales.shape.push_back(1);
  return graph_.op("Mul", {wide, graph_.tensor(scales_name(name), scales)});
}

std::string Loader::parameter(const std::string& name, const std::vector<int64_t>& shape) const {
  std::string& value = added_[name];
  if (value.empty()) value = add(name, read(name, shape));
  return value;
}

std::vector<std::string> Loader::stack(const std::string& name,
                                       const std::vector<int64_t>& shape) const {
  const QuantizedParameter all = read(name, shape);
  const auto one = [](const HostArray& of, int64_t i) {
    HostArray part(of.dtype, {of.shape.begin() + 1, of.shape.end()});
    std::memcpy(part.bytes.data(), of.bytes.data() + i * std::ssize(part.bytes), part.bytes.size());
    return part;
  };
  std::vector<std::string> matrices;
  for (int64_t i = 0; i < shape[0]; ++i)
    matrices.push_back(
        add(fmt::format("{}/{}", name, i),
            {one(all.values, i), all.scales.elements() > 0 ? one(all.scales, i) : all.scales}));
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
  return add(name, {.values = std::move(by_distance), .scales = HostArray(DType::f32, {0})});
}

}  // namespace quintet::onnx
