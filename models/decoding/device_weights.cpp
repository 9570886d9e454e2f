#include "models/decoding/device_weights.h"

#include "kernels/attention/buckets.h"
#include "runtime/tape.h"

namespace quintet::decoding {
namespace {

/// Reads a model's parameters as they are kept.
class Reader {
 public:
  Reader(const Parameters& parameters, const ModelSpec& spec, const KeptWeights& kept, DType wide)
      : parameters_(parameters), spec_(spec), kept_(kept), wide_(wide) {}

  bool in_fewer_bits() const { return kept_.type != WeightType::f32; }
  /// A scale of a norm, a table of biases, a router.
  Tensor vector(const std::string& name) const {
    if (!in_fewer_bits()) return parameters_.at(name).used();
    return DeviceMatrix(read(name), parameters_.at(name).spec.axes, false, DType::f32).values;
  }
  DeviceMatrix matrix(const std::string& name) const {
    if (!in_fewer_bits()) return parameters_.at(name).used();
    return {read(name), parameters_.at(name).spec.axes, name.ends_with("embedding"), wide_};
  }
  /// Decoding's attention does not scale its scores: the queries are.
  DeviceMatrix query(const std::string& scope) const {
    const std::string name = scope + "query/kernel";
    const auto by = factor_of(spec_, name);
    if (in_fewer_bits() || !by) return matrix(name);
    return ops::scale(parameters_.at(name).used(), 1 / static_cast<double>(*by));
  }
  DeviceWeights::Mlp mlp(const std::string& norm, const std::string& scope,
                         const std::vector<std::string>& activations) const {
    const bool gated = activations.size() == 2;
    return {.norm = vector(norm + "/scale"),
            .wi_0 = matrix(scope + (gated ? "/wi_0/kernel" : "/wi/kernel")),
            .wi_1 = gated ? matrix(scope + "/wi_1/kernel") : DeviceMatrix(),
            .wo = matrix(scope + "/wo/kernel"),
            .activations = activations,
            .router = {}};
  }

 private:
  QuantizedParameter read(const std::string& name) const {
    std::vector<int64_t> shape;
    for (const Axis& axis : parameters_.at(name).spec.axes) shape.push_back(axis.size);
    return quantized_parameter(spec_, name, kept_.source(name), kept_.type, shape);
  }

  const Parameters& parameters_;
  const ModelSpec& spec_;
  const KeptWeights& kept_;
  const DType wide_;
};

/// Of one layer; sparse: the mixture that it is, or null.
std::vector<DeviceWeights::Mlp> mlps_of(const Reader& reader, const std::string& layer,
                                        const LayerConfig& config, const SparseStack* sparse) {
  if (sparse == nullptr)
    return {reader.mlp(layer + "/pre_mlp_layer_norm", layer + "/mlp", config.mlp_activations)};
  std::vector all{
      reader.mlp(layer + "/pre_mlp_layer_norm", layer + "/mlp/expert", sparse->moe.activations)};
  all[0].router = reader.vector(layer + "/mlp/router/router_weights/w/kernel");
  all[0].chosen = sparse->moe.router.num_selected_experts;
  if (sparse->extra_mlp)
    all.push_back(reader.mlp(layer + "/pre_extra_mlp_layer_norm", layer + "/extra_mlp",
                             config.mlp_activations));
  return all;
}

DeviceWeights::Encoder encoder_of(const Reader& reader, const StackSpec& spec) {
  DeviceWeights::Encoder encoder{.layers = {},
                                 .norm = reader.vector("encoder/encoder_norm/scale"),
                                 .bias_table = reader.vector("encoder/relpos_bias/rel_embedding")};
  for (int64_t i = 0; i < spec.num_layers; ++i) {
    const std::string layer = spec.layer_scope(i), attention = layer + "/attention/";
    encoder.layers.push_back({.norm = reader.vector(layer + "/pre_attention_layer_norm/scale"),
                              .query = reader.query(attention),
                              .key = reader.matrix(attention + "key/kernel"),
                              .value = reader.matrix(attention + "value/kernel"),
                              .out = reader.matrix(attention + "out/kernel"),
                              .mlp = reader.mlp(layer + "/pre_mlp_layer_norm", layer + "/mlp",
                                                spec.layer.mlp_activations)});
  }
  return encoder;
}

/// What is added for a key 0, 1, ... tokens back.
Tensor bias_by_distance(const HostArray& table, int64_t max_distance) {
  const int64_t heads = table.shape[0], buckets = table.shape[1];
  const BucketRule rule{.bidirectional = false, .buckets = buckets, .max_distance = max_distance};
  HostArray bias(DType::f32, {heads, max_distance});
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t back = 0; back < max_distance; ++back)
      bias.as<float>()[static_cast<size_t>(h * max_distance + back)] =
          table.as<float>()[static_cast<size_t>(h * buckets + rule.bucket(-back))];
  return Tensor::from_host(bias, {axis::kHeads, "distance"});
}

}  // namespace

DeviceWeights::DeviceWeights(const BaseModel& model, const KeptWeights& kept) : spec(model.spec()) {
  const Tape::Recording paused(nullptr);
  spec.decoder.sparse.check_generates();
  const Reader reader(model.parameters(), spec, kept, dtype_from_name(spec.dtype));
  for (int64_t i = 0; i < spec.decoder.num_layers; ++i) {
    const std::string layer = spec.decoder.layer_scope(i);
    const std::string self = layer + "/self_attention/";
    Layer weights{.self_norm = reader.vector(layer + "/pre_self_attention_layer_norm/scale"),
                  .query = reader.query(self),
                  .key = reader.matrix(self + "key/kernel"),
                  .value = reader.matrix(self + "value/kernel"),
                  .qkv = {},
                  .self_out = reader.matrix(self + "out/kernel"),
                  .cross_norm = {},
                  .cross_query = {},
                  .cross_key = {},
                  .cross_value = {},
                  .cross_out = {},
                  .mlps = mlps_of(reader, layer, spec.decoder.layer, spec.decoder.sparse_at(i))};
    weights.qkv = side_by_side({weights.query, weights.key, weights.value});
    if (spec.decoder.cross_attention) {
      const std::string cross = layer + "/encoder_decoder_attention/";
      weights.cross_norm = reader.vector(layer + "/pre_cross_attention_layer_norm/scale");
      weights.cross_query = reader.query(cross);
      weights.cross_key = reader.matrix(cross + "key/kernel");
      weights.cross_value = reader.matrix(cross + "value/kernel");
      weights.cross_out = reader.matrix(cross + "out/kernel");
      if (reader.in_fewer_bits()) weights.query = weights.key = weights.value = {};  // of prefixes
    }
    layers.push_back(std::move(weights));
  }
  embedding = reader.matrix(spec.embedding_name());
  logits = spec.logits_via_embedding ? embedding : reader.matrix("decoder/logits_dense/kernel");
  norm = reader.vector("decoder/decoder_norm/scale");
  bias_table = reader.vector("decoder/relpos_bias/rel_embedding");
  bias = bias_by_distance(bias_table.to_host(), layer().max_distance);
  if (spec.encoder && reader.in_fewer_bits() && !spec.encoder_has_experts())
    encoder = encoder_of(reader, *spec.encoder);
}

}  // namespace quintet::decoding
