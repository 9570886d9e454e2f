#include "models/decoding/device_weights.h"

#include <algorithm>
#include <cmath>

#include "kernels/attention/buckets.h"
#include "runtime/tape.h"

namespace quintet::decoding {
namespace {

/// Matrices of equal height side by side: one product instead of several.
Tensor side_by_side(const std::vector<Tensor>& parts) {
  const int64_t height = parts[0].size(0), item = size_of(parts[0].spec().dtype);
  int64_t width = 0;
  std::vector<HostArray> hosts;
  for (const Tensor& part : parts) {
    hosts.push_back(part.to_host());
    width += part.size(1);
  }
  HostArray joined(parts[0].spec().dtype, {height, width});
  for (int64_t row = 0, at = 0; row < height; ++row)
    for (const HostArray& host : hosts) {
      const int64_t bytes = host.shape[1] * item;
      std::copy_n(host.bytes.begin() + row * bytes, bytes, joined.bytes.begin() + at);
      at += bytes;
    }
  return Tensor::from_host(joined, {axis::kEmbed, axis::kJoinedKv});
}

/// Of one layer; sparse: the mixture that it is, or null.
std::vector<DeviceWeights::Mlp> mlps_of(const Parameters& parameters, const std::string& layer,
                                        const LayerConfig& config, const SparseStack* sparse) {
  const auto used = [&](const std::string& name) { return parameters.at(layer + name).used(); };
  const auto mlp = [&](const std::string& norm, const std::string& scope,
                       const std::vector<std::string>& activations) {
    const bool gated = activations.size() == 2;
    return DeviceWeights::Mlp{.norm = used(norm + "/scale"),
                              .wi_0 = used(scope + (gated ? "/wi_0/kernel" : "/wi/kernel")),
                              .wi_1 = gated ? used(scope + "/wi_1/kernel") : Tensor(),
                              .wo = used(scope + "/wo/kernel"),
                              .activations = activations,
                              .router = {}};
  };
  if (sparse == nullptr) return {mlp("/pre_mlp_layer_norm", "/mlp", config.mlp_activations)};
  std::vector all{mlp("/pre_mlp_layer_norm", "/mlp/expert", sparse->moe.activations)};
  all[0].router = used("/mlp/router/router_weights/w/kernel");
  all[0].chosen = sparse->moe.router.num_selected_experts;
  if (sparse->extra_mlp)
    all.push_back(mlp("/pre_extra_mlp_layer_norm", "/extra_mlp", config.mlp_activations));
  return all;
}

/// What is added for a key 0, 1, ... tokens back.
Tensor bias_by_distance(const HostArray& table) {
  const int64_t heads = table.shape[0], buckets = table.shape[1];
  const BucketRule rule{.bidirectional = false, .buckets = buckets, .max_distance = kMaxDistance};
  HostArray bias(DType::f32, {heads, kMaxDistance});
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t back = 0; back < kMaxDistance; ++back)
      bias.as<float>()[static_cast<size_t>(h * kMaxDistance + back)] =
          table.as<float>()[static_cast<size_t>(h * buckets + rule.bucket(-back))];
  return Tensor::from_host(bias, {axis::kHeads, "distance"});
}

}  // namespace

DeviceWeights::DeviceWeights(const BaseModel& model) : vocab_size(model.vocab_size()) {
  const Tape::Recording paused(nullptr);
  int64_t num_layers = 0;
  SparseStack sparse;
  if (const auto* both = dynamic_cast<const EncoderDecoderModel*>(&model)) {
    config = both->network().config();
    sparse = both->network().config().sparse_decoder;
    num_layers = both->network().config().num_decoder_layers;
    projection = both->network().projection();
    has_encoder = true;
  } else {
    const auto& network = dynamic_cast<const DecoderOnlyModel&>(model).network();
    config = network.config();
    sparse = network.config().sparse;
    num_layers = network.config().num_layers;
    projection = network.projection();
  }
  sparse.check_generates();
  const auto used = [&](const std::string& name) { return model.parameters().at(name).used(); };
  const double scale =
      config.scale_attn_logits ? 1 / std::sqrt(static_cast<double>(config.head_dim)) : 1;
  // Decoding's attention does not scale its scores: the queries are.
  const auto query = [&](const std::string& name) {
    return scale == 1 ? used(name) : ops::scale(used(name), scale);
  };
  for (int64_t i = 0; i < num_layers; ++i) {
    const std::string layer = fmt::format("decoder/layers_{}", i);
    const std::string self = layer + "/self_attention/";
    Layer weights{.self_norm = used(layer + "/pre_self_attention_layer_norm/scale"),
                  .query = query(self + "query/kernel"),
                  .key = used(self + "key/kernel"),
                  .value = used(self + "value/kernel"),
                  .qkv = {},
                  .self_out = used(self + "out/kernel"),
                  .cross_norm = {},
                  .cross_query = {},
                  .cross_key = {},
                  .cross_value = {},
                  .cross_out = {},
                  .mlps = mlps_of(model.parameters(), layer, config,
                                  sparse.is_sparse(i, num_layers) ? &sparse : nullptr)};
    weights.qkv = side_by_side({weights.query, weights.key, weights.value});
    if (has_encoder) {
      const std::string cross = layer + "/encoder_decoder_attention/";
      weights.cross_norm = used(layer + "/pre_cross_attention_layer_norm/scale");
      weights.cross_query = query(cross + "query/kernel");
      weights.cross_key = used(cross + "key/kernel");
      weights.cross_value = used(cross + "value/kernel");
      weights.cross_out = used(cross + "out/kernel");
    }
    layers.push_back(std::move(weights));
  }
  embedding = used(has_encoder ? "token_embedder/embedding" : "decoder/token_embedder/embedding");
  norm = used("decoder/decoder_norm/scale");
  bias_table = used("decoder/relpos_bias/rel_embedding");
  bias = bias_by_distance(bias_table.to_host());
}

}  // namespace quintet::decoding
