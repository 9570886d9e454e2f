#pragma once
// Small random networks with experts in the decoder, or with parallel layers, on the current device and packed for the CPU.

#include "models/base_model.h"
#include "models/decoding/cpu/packed_network.h"
#include "tests/harness/device.h"

namespace quintet::testing {

inline constexpr int64_t kSparseVocab = 37;

struct SparseOptions {
  bool decoder_only = false;
  int64_t chosen = 1;
  bool gated = false, extra = false;
  std::optional<Router> encoder = Router::tokens_choose;  // none: dense
  std::string dtype = "float32";
  int64_t capacity = 0;   // of the encoder's experts, tokens of a sequence
  bool separate = false;  // encoder and decoder have embeddings of their own
  bool router_bias = false;
  bool shared_bias = true;  // else every layer has a relative position bias
  bool rotary = false;      // instead of one
  bool multi_query = false;
  bool parallel = false;  // layers, those with experts too
  bool fused = false;     // layers of a decoder alone, without experts

  std::string name() const {
    return fmt::format("{}{}{}_{}{}{}{}{}{}_{}", shared_bias ? "" : "umt5_",
                       parallel ? "parallel_" : "", decoder_only ? "decoder_only" : "encdec",
                       chosen, gated ? "_gated" : "", extra ? "_extra" : "",
                       capacity > 0 ? "_capacity" : "", separate ? "_separate" : "",
                       router_bias ? "_router_bias" : "", dtype);
  }
};

/// One of each kind.
inline std::vector<SparseOptions> sparse_kinds() {
  return {{.chosen = 1},
          {.chosen = 2},
          {.gated = true},
          {.chosen = 2, .gated = true, .extra = true},
          {.chosen = 2, .gated = true, .encoder = Router::experts_choose},
          {.gated = true, .encoder = {}, .shared_bias = false},
          {.separate = true},
          {.chosen = 2, .router_bias = true},
          {.decoder_only = true, .chosen = 2, .gated = true, .router_bias = true},
          {.decoder_only = true, .chosen = 1},
          {.decoder_only = true, .chosen = 3, .gated = true, .extra = true},
          {.decoder_only = true, .chosen = 1, .shared_bias = false},
          {.chosen = 2, .gated = true, .extra = true, .parallel = true},
          {.chosen = 2, .gated = true, .encoder = Router::experts_choose, .parallel = true},
          {.decoder_only = true, .chosen = 2, .parallel = true}};
}

/// T5Config or TransformerConfig. Nobody is turned away by capacity.
template <class Config>
Config sparse_config(const SparseOptions& options) {
  Config c;
  c.vocab_size = kSparseVocab, c.emb_dim = 24, c.num_heads = 3, c.head_dim = 8, c.mlp_dim = 20;
  c.mlp_activations = {"relu"};
  c.num_buckets = 8, c.max_distance = 5;  // unlike T5's, and nearer than the farthest token
  c.dtype = options.dtype;
  c.shared_relative_position_bias = options.shared_bias;
  c.multi_query = options.multi_query;
  if (options.rotary) c.rotary_max_timescale = 50, c.num_buckets = 0;
  StackConfig config;
  config.sparse_layers.extra_mlp = options.extra;
  if (options.parallel) config.dense_layers.form = config.sparse_layers.form = LayerForm::parallel;
  if (options.fused) config.dense_layers.form = LayerForm::fused;
  if (options.fused) c.multi_query = true, c.mlp_dim = 21, c.mlp_activations = {"gelu", "linear"};
  SparseStack& stack = config.sparse;
  stack.num_sparse_layers = 1;
  stack.moe.num_experts = 4;
  stack.moe.mlp_dim = 18;
  stack.moe.activations = {"relu"};
  if (options.gated) stack.moe.activations = {"gelu", "linear"};
  stack.moe.eval_capacity_factor = 8;
  stack.moe.router.num_selected_experts = options.chosen;
  stack.moe.router.weights_stddev = 1;
  stack.moe.dropless = stack.moe.router.use_bias = options.router_bias;
  if constexpr (std::is_same_v<Config, TransformerConfig>) {
    c.num_layers = 2;
  } else {
    c.num_encoder_layers = c.num_decoder_layers = 2;
    c.masks_padding = true;
    c.separate_embeddings = options.separate;
    c.encoder = config;
    if (options.encoder) {
      c.encoder.sparse.moe.router.kind = *options.encoder;
      c.encoder.sparse.moe.expert_capacity = options.capacity;
    } else {
      c.encoder.sparse = {};
    }
  }
  if (options.fused) config.sparse = {};
  c.decoder = config;
  return c;
}

struct SparseNetwork {
  std::unique_ptr<BaseModel> model;
  HostArrays parameters;

  const ModelSpec& spec() const { return model->spec(); }
  bool decoder_only() const { return spec().decoder_only(); }
  decoding::ParameterSource source() const {
    return [this](const std::string& name) {
      const HostArray& array = parameters.at(name);
      return View::of(array.as<float>().data(), array.shape);
    };
  }
  /// For the CPU.
  std::unique_ptr<decoding::PackedNetwork> packed() const {
    return std::make_unique<decoding::PackedNetwork>(spec(), source());
  }
};

inline SparseNetwork sparse_network(const SparseOptions& options) {
  SparseNetwork network;
  const auto make = [&]<class Model, class Config>(const Config& config, auto... more) {
    network.model = std::make_unique<Model>(config, LossOptions{}, more...);
  };
  if (options.decoder_only)
    make.template operator()<DecoderOnlyModel>(sparse_config<TransformerConfig>(options), false);
  else
    make.template operator()<EncoderDecoderModel>(sparse_config<T5Config>(options));
  network.model->parameters().initialize(key_from_seed(3));
  for (const ParamInfo& info : network.model->parameters().all()) {
    HostArray& array = network.parameters[info.name] = info.value.to_host();
    if (!info.name.ends_with("router_weights/w/bias")) continue;
    for (size_t e = 0; e < array.as<float>().size(); ++e)  // enough to change choices
      array.as<float>()[e] = static_cast<float>(e % 3) - 1.0F;
    info.value.set(array);
  }
  return network;
}

}  // namespace quintet::testing
