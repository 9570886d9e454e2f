#include "models/decoding/gpu/gpu_weights.h"

#include <algorithm>
#include <optional>

#include "kernels/attention/buckets.h"
#include "models/decoding/network/place.h"
#include "runtime/execution/tape.h"

namespace quintet::decoding {
namespace {

/// What is added for a key 0, 1, ..., max_distance tokens back; the last one also for those farther.
Tensor bias_by_distance(const HostArray& table, int64_t max_distance) {
  const int64_t heads = table.shape[0], buckets = table.shape[1];
  const BucketRule rule{.bidirectional = false, .buckets = buckets, .max_distance = max_distance};
  const int64_t distances = max_distance + 1;
  HostArray bias(DType::f32, {heads, distances});
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t back = 0; back < distances; ++back)
      bias.as<float>()[static_cast<size_t>(h * distances + back)] =
          table.as<float>()[static_cast<size_t>(h * buckets + rule.bucket(-back))];
  return Tensor::from_host(bias, {axis::kHeads, "distance"});
}

/// Takes a model's parameters as they are weights; the model knows their sizes.
class Loader {
 public:
  using Form = GpuForm;
  Loader(const Parameters& parameters, const ModelSpec& spec, const StackSpec& all_heads,
         const InferenceWeights& weights)
      : parameters_(parameters),
        spec_(spec),
        all_heads_(all_heads),
        weights_(weights),
        compute_dtype_(dtype_from_name(spec.dtype)),
        type_(weights.type == WeightType::f32 && compute_dtype_ == DType::bf16 ? WeightType::bf16
                                                                               : weights.type) {}

  /// Whether the model's own parameters are read.
  bool has_all() const { return weights_.type == WeightType::f32 && !is_part(); }
  bool is_part() const { return weights_.ranks.size() > 1; }
  Tensor vector(const std::string& name, int64_t) const {
    return has_all() ? parameters_.at(name).used() : copied(name, {}, DType::f32).values;
  }
  /// Decoding's attention does not scale its scores: the queries are. `axis`: of which a rank has its part.
  GpuMatrix matrix(const std::string& name, std::optional<int> axis = {}) const {
    if (!has_all()) return copied(name, axis, compute_dtype_);
    const Tensor used = own(name);
    const auto by = factor_of(spec_, name);
    return by ? ops::scale(used, 1 / static_cast<double>(*by)) : used;
  }
  GpuMatrix matrix(const std::string& name, int64_t, int64_t) const { return matrix(name, kRows); }
  Form::Projections projections(const std::string& scope, std::initializer_list<const char*> names,
                                ReadBy by) const {
    Form::Projections all;
    for (const char* name : names)
      all.parts.push_back(
          matrix(fmt::format("{}/{}/kernel", scope, name),
                 is_shared(spec_.decoder.layer, name) ? std::optional<int>() : kColumns));
    if (by.steps) all.joined = names.size() == 1 ? all.parts[0] : side_by_side(all.parts);
    if (!by.sequences) all.parts.clear();
    return all;
  }
  Form::Mlp mlp(const std::string& scope, int64_t,
                const std::vector<std::string>& activations) const {
    const bool gated = activations.size() == 2;
    return {.wi_0 = matrix(scope + (gated ? "/wi_0/kernel" : "/wi/kernel"), kColumns),
            .wi_1 = gated ? matrix(scope + "/wi_1/kernel", kColumns) : GpuMatrix(),
            .wo = matrix(scope + "/wo/kernel", kRows),
            .activations = activations};
  }
  Form::Experts experts(const std::string& scope, const MoeConfig& moe) const {
    const std::string router = scope + "/router/router_weights/w/";
    return {.router = vector(router + "kernel", 0),
            .router_bias = moe.router.use_bias ? vector(router + "bias", 0) : Tensor(),
            .moe = moe,
            .mlp = mlp(scope + "/expert", moe.mlp_dim, moe.activations)};
  }
  Form::Bias relative_bias(const std::string& name, const StackSpec& stack) const {
    Form::Bias bias{.table = has_all() ? vector(name, 0) : copied(name, kRows, DType::f32).values,
                    .by_distance = {}};
    if (!stack.is_encoder)
      bias.by_distance = bias_by_distance(bias.table.to_host(), stack.layer.max_distance);
    return bias;
  }

 private:
  static constexpr int kRows = 0, kColumns = 1;

  Tensor own(const std::string& name) const {
    const Place place = place_of(all_heads_, name);
    const Tensor& used = parameters_.at(place.parameter).used();
    if (!place.is_part()) return used;
    const Tensor part(Spec{place.axes, used.spec().dtype});
    const int64_t bytes = size_of(used.spec().dtype);
    Device::current().copy({.to = part.raw(),
                            .from = used.raw() + place.offset * bytes,
                            .bytes = place.unit * bytes,
                            .counts = {1, place.count},
                            .to_strides = {0, place.unit * bytes},
                            .from_strides = {0, place.stride * bytes}});
    return part;
  }

  /// From the source; `axis`, of its matrices: this rank's part of it alone.
  GpuMatrix copied(const std::string& name, std::optional<int> axis, DType computed) const {
    const Place place = place_of(all_heads_, name);
    Axes axes = place.is_part() ? place.axes : parameters_.at(name).spec.axes;
    const auto uploaded = [&](const QuantizedParameter& parameter) {
      return GpuMatrix(parameter, axes, name.ends_with("token_embedder/embedding"), computed);
    };
    const std::vector<int64_t> shape = sizes(axes);
    if (!axis || !is_part()) return uploaded(read(name, weights_.source(name), shape));
    int64_t& size = axes[axes.size() - 2 + static_cast<size_t>(*axis)].size;
    size /= weights_.ranks.size();
    const ParameterPart part{*axis, weights_.ranks.rank() * size, size};
    if (shape.size() > 2 && weights_.source.has_each())
      return uploaded(parts_of_each(name, shape, sizes(axes), part));
    return uploaded(part_of(read(name, weights_.source(name), shape), part));
  }
  QuantizedParameter read(const std::string& name, const StoredParameter& stored,
                          const std::vector<int64_t>& shape) const {
    return quantized_parameter(spec_, name, stored, type_, shape);
  }
  /// Of a stack whose matrices the source gives one by one, which those of a run do.
  QuantizedParameter parts_of_each(const std::string& name, const std::vector<int64_t>& shape,
                                   const std::vector<int64_t>& own,
                                   const ParameterPart& part) const {
    QuantizedParameter parts{HostArray(stored_dtype(type_), own), HostArray(DType::f32, {0})};
    QT_ASSERT(weight_bytes(type_) > 1);  // without scales
    weights_.source.each(name, [&](int64_t i, const StoredParameter& stored) {
      const HostArray one = part_of(read(name, stored, {shape[1], shape[2]}), part).values;
      std::ranges::copy(one.bytes, parts.values.bytes.begin() + i * std::ssize(one.bytes));
    });
    return parts;
  }
  static std::vector<int64_t> sizes(const Axes& axes) {
    std::vector<int64_t> all;
    for (const Axis& axis : axes) all.push_back(axis.size);
    return all;
  }

  const Parameters& parameters_;
  const ModelSpec& spec_;
  const StackSpec& all_heads_;
  const InferenceWeights& weights_;
  const DType compute_dtype_;
  const WeightType type_;  // of what is copied
};

/// Of dense MLPs and of experts.
std::vector<int64_t> mlp_widths(const ModelSpec& spec) {
  std::vector<int64_t> widths{spec.decoder.layer.mlp_dim};
  for (const StackSpec* stack : {&spec.decoder, spec.encoder ? &*spec.encoder : nullptr})
    if (stack != nullptr && stack->has_experts()) widths.push_back(stack->sparse.moe.mlp_dim);
  return widths;
}

}  // namespace

bool has_equal_parts(const ModelSpec& spec, int64_t ranks) {
  return spec.decoder.layer.num_heads % ranks == 0 &&
         std::ranges::all_of(mlp_widths(spec), [&](int64_t width) { return width % ranks == 0; });
}

GpuWeights::GpuWeights(ModelSpec part, const Parameters& parameters,
                       const InferenceWeights& weights)
    : spec(std::move(part)), ranks(weights.ranks) {
  refuse_own_network(spec);
  const Tape::Recording paused(nullptr);
  QT_CHECK(has_equal_parts(spec, ranks.size()),
           "tensor parallel: {} ranks for {} attention heads and MLPs of {}: GPUs have equal parts "
           "of them; start a number of ranks that divides each",
           ranks.size(), spec.decoder.layer.num_heads, fmt::join(mlp_widths(spec), " and "));
  const StackSpec all_heads = spec.decoder;
  const InferenceWeights matrices{weights.type, by_matrix(spec, weights.source), ranks};
  spec.decoder.layer.num_heads /= ranks.size();
  if (spec.encoder) spec.encoder->layer.num_heads /= ranks.size();
  const Loader load(parameters, spec, all_heads, matrices);
  if (spec.encoder) {
    encoder = load_stack(load, *spec.encoder);
    encoder_embedding = load.matrix(spec.embedding_name(*spec.encoder));
  }
  if (spec.encoder_only()) return;
  spec.decoder.sparse.check_generates();
  decoder = load_stack(load, spec.decoder);
  embedding = spec.encoder && !spec.separate_embeddings
                  ? encoder_embedding
                  : load.matrix(spec.embedding_name(spec.decoder));
  logits = spec.logits_via_embedding ? embedding : load.matrix("decoder/logits_dense/kernel");
}

}  // namespace quintet::decoding
