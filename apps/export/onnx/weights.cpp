#include "apps/export/onnx/weights.h"

#include <cstring>

#include "checkpoint/arrays/half.h"
#include "checkpoint/finite.h"
#include "kernels/attention/buckets.h"
#include "models/decoding/network/place.h"
#include "models/decoding/network/quantized_parameters.h"
#include "runtime/base/check.h"

namespace quintet::onnx {

HostArray Loader::read(const std::string& name, std::vector<int64_t> shape) const {
  const decoding::StoredParameter stored = source_(name);
  HostArray array(DType::f32, std::move(shape));
  QT_CHECK_AS(ExitCode::kData,
              stored.values.dtype == DType::f32 && stored.values.elements() == array.elements(),
              "parameter {}: expected {} values of float32, found {} of {}; does the configuration "
              "belong to this checkpoint?",
              name, array.elements(), stored.values.elements(), name_of(stored.values.dtype));
  std::memcpy(array.bytes.data(), stored.values.pointer, array.bytes.size());
  if (const auto by = decoding::factor_of(spec_, name))
    for (float& x : array.as<float>()) x /= *by;
  return array;
}

std::string Loader::add(const std::string& name, HostArray array) const {
  if (dtype_ == DType::f32) return graph_.tensor(name, array);
  array = rounded(std::move(array), dtype_);
  QT_CHECK_AS(ExitCode::kData, count_not_finite(dtype_, array.bytes) == 0,
              "parameter {}: holds numbers too large for {}; use bfloat16 or float32", name,
              name_of(dtype_));
  return graph_.op("Cast", {graph_.tensor(name, array)}, {{"to", int64_t{kFloat}}});
}

std::string Loader::vector(const std::string& name, int64_t size) const {
  return add(name, read(name, {size}));
}

std::string Loader::matrix(const std::string& name, int64_t rows, int64_t columns) const {
  return add(name, read(name, {rows, columns}));
}

std::vector<std::string> Loader::projections(const std::string& scope,
                                             std::initializer_list<const char*> parts,
                                             decoding::ReadBy) const {
  const LayerConfig& c = spec_.decoder.layer;
  std::vector<std::string> names;
  for (const std::string part : parts) {
    const std::string name = fmt::format("{}/{}/kernel", scope, part);
    names.push_back(decoding::is_shared(c, part)
                        ? add(name, for_all_heads(read(name, {c.emb_dim, c.head_dim})))
                        : matrix(name, c.emb_dim, c.joined_kv()));
  }
  return names;
}

HostArray Loader::for_all_heads(const HostArray& one) const {
  const LayerConfig& c = spec_.decoder.layer;
  HostArray all(DType::f32, {c.emb_dim, c.joined_kv()});
  const auto from = one.as<float>();
  const auto to = all.as<float>();
  for (size_t i = 0; i < to.size(); ++i) {
    const auto row = i / static_cast<size_t>(c.joined_kv()),
               kv = i % static_cast<size_t>(c.head_dim);
    to[i] = from[row * static_cast<size_t>(c.head_dim) + kv];
  }
  return all;
}

Mlp Loader::mlp(const std::string& scope, int64_t width,
                const std::vector<std::string>& activations) const {
  const int64_t embed = spec_.emb_dim();
  Mlp mlp;
  const bool gated = activations.size() == 2;
  for (size_t i = 0; i < activations.size(); ++i) {
    mlp.in.push_back(matrix(gated ? fmt::format("{}/wi_{}/kernel", scope, i) : scope + "/wi/kernel",
                            embed, width));
    mlp.activations.push_back(activation_from_name(activations[i]));
  }
  mlp.out = matrix(scope + "/wo/kernel", width, embed);
  return mlp;
}

NoExperts Loader::experts(const std::string& scope, const MoeConfig&) const {
  fail(ExitCode::kUsage, "{}: a mixture of experts has no ONNX graph here", scope);
}

std::string Loader::relative_bias(const std::string& name, const StackSpec& stack) const {
  const LayerConfig& c = stack.layer;
  const BucketRule rule{
      .bidirectional = stack.is_encoder, .buckets = c.num_buckets, .max_distance = c.max_distance};
  const HostArray table = read(name, {c.num_heads, c.num_buckets});
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
