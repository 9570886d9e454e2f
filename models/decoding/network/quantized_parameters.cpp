#include "models/decoding/network/quantized_parameters.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace quintet::decoding {
namespace {

/// Of a parameter, when matrices take `weights`.
WeightType type_of(const ModelSpec& spec, const std::string& name, WeightType weights) {
  if (is_token_table(name)) return spec.logits_via_embedding ? weights : high_precision(weights);
  if (!name.ends_with("/kernel") || name.find("/router/") != std::string::npos)
    return WeightType::f32;
  return name.ends_with("/wo/kernel") ? high_precision(weights) : weights;
}

/// w [matrices, k, n] -> T, a scale a column; or a scale a row.
template <typename T>
QuantizedParameter to_bytes(const float* w, const View& like, bool by_row, DType dtype) {
  const int64_t n = like.size(-1), k = like.size(-2), matrices = like.elements() / (k * n);
  const std::vector<int64_t> shape(like.sizes.begin(), like.sizes.begin() + like.rank);
  std::vector<int64_t> scales_shape = shape;
  scales_shape.erase(scales_shape.end() - (by_row ? 1 : 2));
  QuantizedParameter q{HostArray(dtype, shape), HostArray(DType::f32, scales_shape)};
  T* values = reinterpret_cast<T*>(q.values.bytes.data());
  float* scales = q.scales.as<float>().data();
  const int64_t columns = by_row ? k : n;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < matrices * columns; ++i) {
    const int64_t first = by_row ? i * n : i / n * k * n + i % n;
    scales[i] = quantize_column(w + first, by_row ? n : k, by_row ? 1 : n, values + first);
  }
  return q;
}

}  // namespace

bool is_token_table(const std::string& name) { return name.ends_with("token_embedder/embedding"); }

WeightType high_precision(WeightType type) {
  return weight_bytes(type) == 1 ? WeightType::bf16 : type;
}

DType stored_dtype(WeightType type) {
  constexpr DType kStored[] = {DType::f32, DType::bf16, DType::i8, DType::i8, DType::u8};
  return kStored[static_cast<size_t>(type)];
}

std::optional<float> factor_of(const ModelSpec& spec, const std::string& name) {
  const LayerConfig& layer = spec.decoder.layer;
  if (layer.scale_attn_logits && name.ends_with("/query/kernel"))
    return std::sqrt(static_cast<float>(layer.head_dim));
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has("/extra_mlp/") || !(has("/out/kernel") || has("/wo/kernel"))) return std::nullopt;
  for (const StackSpec* stack : {&spec.decoder, spec.encoder ? &*spec.encoder : nullptr})
    for (int64_t i = 0; stack != nullptr && i < stack->num_layers; ++i)
      if (stack->sum_divisor(i) != 1 && name.starts_with(stack->layer_scope(i) + "/"))
        return static_cast<float>(stack->sum_divisor(i));
  return std::nullopt;
}

QuantizedParameter quantize_parameter(const ModelSpec& spec, const std::string& name,
                                      const View& value, WeightType weights) {
  QT_CHECK(
      !name.ends_with("_fused/kernel"),
      "parameter {}: kernels of fused layers are stored in float32 alone; serve and generate make "
      "weights in fewer bits of them when they start",
      name);
  const WeightType type = type_of(spec, name, weights);
  std::vector<float> scaled;
  const float* w = value.data<float>();
  if (const auto by = factor_of(spec, name)) {
    scaled.assign(w, w + value.elements());
    for (float& x : scaled) x /= *by;
    w = scaled.data();
  }
  const bool by_row = is_token_table(name);
  if (type == WeightType::fp8) return to_bytes<float8>(w, value, by_row, DType::u8);
  if (weight_bytes(type) == 1) return to_bytes<int8_t>(w, value, by_row, DType::i8);
  QuantizedParameter q{
      HostArray(stored_dtype(type), {value.sizes.begin(), value.sizes.begin() + value.rank}),
      HostArray(DType::f32, {0})};
  if (type == WeightType::f32)
    std::copy_n(w, value.elements(), q.values.as<float>().begin());
  else
    std::transform(w, w + value.elements(), q.values.as<bfloat16>().begin(),
                   [](float x) { return bfloat16(x); });
  return q;
}

QuantizedParameter part_of(const QuantizedParameter& matrix, const ParameterPart& part) {
  const size_t axis = matrix.values.shape.size() - 2 + static_cast<size_t>(part.axis);
  // Of matrices, or of the scales of their columns.
  const auto cut = [&](const HostArray& from, size_t along) {
    std::vector<int64_t> shape = from.shape;
    shape[along] = part.count;
    HostArray to(from.dtype, shape);
    int64_t item = size_of(from.dtype);
    for (size_t i = along + 1; i < shape.size(); ++i) item *= shape[i];
    const int64_t bytes = part.count * item;
    for (int64_t i = 0; i * bytes < std::ssize(to.bytes); ++i)
      std::memcpy(to.bytes.data() + i * bytes,
                  from.bytes.data() + (i * from.shape[along] + part.begin) * item,
                  static_cast<size_t>(bytes));
    return to;
  };
  const bool cuts_scales = part.axis == 1 && matrix.scales.elements() > 0;
  return {cut(matrix.values, axis), cuts_scales ? cut(matrix.scales, axis - 1) : matrix.scales};
}

QuantizedParameter quantized_parameter(const ModelSpec& spec, const std::string& name,
                                       const StoredParameter& stored, WeightType weights,
                                       const std::vector<int64_t>& sizes) {
  const View& view = stored.values;
  const DType dtype = stored_dtype(type_of(spec, name, weights));
  HostArray values(dtype, sizes);
  // Kernels may come as [embed, heads, kv]: the order of elements is the same.
  QT_CHECK_AS(
      ExitCode::kData,
      view.elements() == values.elements() && (view.dtype == DType::f32 || view.dtype == dtype),
      "parameter {}: expected [{}] of {}, found {} values of {}; does the configuration "
      "belong to this checkpoint?",
      name, fmt::join(sizes, ", "), name_of(dtype), view.elements(), name_of(view.dtype));
  if (view.dtype == DType::f32)
    return quantize_parameter(spec, name, View::of(view.data<float>(), sizes), weights);
  std::memcpy(values.bytes.data(), view.pointer, values.bytes.size());
  QuantizedParameter q{std::move(values), HostArray(DType::f32, {0})};
  if (size_of(dtype) > 1) return q;
  const bool by_row = is_token_table(name);
  std::vector<int64_t> scales = sizes;
  scales.erase(scales.end() - (by_row ? 1 : 2));
  q.scales = HostArray(DType::f32, scales);
  std::copy_n(stored.scales, q.scales.elements(), q.scales.as<float>().begin());
  return q;
}

}  // namespace quintet::decoding
