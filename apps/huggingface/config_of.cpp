#include "apps/huggingface/config_of.h"

#include <fmt/ranges.h>

#include "models/network.h"

namespace quintet {
namespace {

/// What cannot be said, a line each.
class Misfits {
 public:
  void unless(bool fits, std::string what) {
    if (!fits) all_.push_back(std::move(what));
  }
  void check() const {
    QT_CHECK(all_.empty(), "the model cannot be a Hugging Face directory:\n  {}",
             fmt::join(all_, "\n  "));
  }

 private:
  std::vector<std::string> all_;
};

bool is_known(const std::string& activation) {
  return activation == "relu" || activation == "gelu" || activation == "gelu_erf" ||
         activation == "silu" || activation == "swish" || activation == "linear";
}

void set_activation(const LayerConfig& layer, huggingface::Config& config, Misfits& misfits) {
  const auto& names = layer.mlp_activations;
  config.gated = names.size() == 2;
  const bool fits =
      (names.size() == 1 || (config.gated && names[1] == "linear")) && is_known(names.front());
  misfits.unless(
      fits, fmt::format("mlp_activations = ({}): there are relu, gelu, gelu_erf, silu and linear, "
                        "alone or with 'linear' as gate",
                        fmt::join(names, ", ")));
  config.activation = names.front() == "swish" ? "silu" : names.front();
}

std::string of_experts(const StackSpec& stack, std::string_view what) {
  return fmt::format("{}'s experts: {}", stack.scope(), what);
}

/// Takes the number of sparse layers by which transformers places them as the stack does, if there is one.
bool set_sparse_layers(const StackSpec& stack, huggingface::Config& config) {
  int64_t& sparse =
      stack.is_encoder ? config.num_sparse_encoder_layers : config.num_sparse_decoder_layers;
  // More than layers: none.
  for (sparse = stack.num_layers + 1; sparse > 0; --sparse) {
    bool fits = true;
    for (int64_t i = 0; fits && i < stack.num_layers; ++i)
      fits = (stack.sparse_at(i) != nullptr) == config.is_sparse(stack.is_encoder, i);
    if (fits) return true;
  }
  return false;
}

/// Experts are transformers' where its places are the stack's, and a token has one.
void set_experts(const StackSpec& stack, huggingface::Config& config, Misfits& misfits) {
  const bool placed = set_sparse_layers(stack, config);
  if (!stack.has_experts()) return;
  const MoeConfig& moe = stack.sparse.moe;
  misfits.unless(config.num_experts == 0 || config.num_experts == moe.num_experts,
                 of_experts(stack, "encoder and decoder have different num_experts"));
  misfits.unless(config.num_experts == 0 || config.router_bias == moe.router.use_bias,
                 of_experts(stack, "the routers of encoder and decoder differ in use_bias"));
  config.num_experts = moe.num_experts;
  config.router_bias = moe.router.use_bias;
  config.router_jitter_noise = moe.router.jitter_noise;
  if (moe.expert_capacity > 0) config.expert_capacity = moe.expert_capacity;
  misfits.unless(placed,
                 of_experts(stack, "expected in every layer, or in the second of every so many"));
  misfits.unless(moe.router.kind == Router::tokens_choose && moe.router.num_selected_experts == 1,
                 of_experts(stack, "expected routers by which a token chooses one expert"));
  misfits.unless(moe.mlp_dim == stack.layer.mlp_dim,
                 of_experts(stack, "they have another mlp_dim than dense layers"));
  misfits.unless(moe.activations == stack.layer.mlp_activations && !config.gated,
                 of_experts(stack, "expected the activation of dense layers, without a gate"));
}

void set_layers(const StackSpec& stack, Misfits& misfits) {
  int64_t i = 0;
  while (i < stack.num_layers && stack.kind(i) == LayerKind{}) ++i;
  if (i == stack.num_layers) return;
  misfits.unless(
      false,
      fmt::format(
          "{} is {}: T5's layers are attention and one MLP one after another, each of a norm "
          "of its own",
          stack.layer_scope(i), stack.kind(i).text()));
}

}  // namespace

huggingface::Config huggingface_config(const ModelSpec& spec) {
  Misfits misfits;
  misfits.unless(!spec.decoder_only(), "it has no encoder");
  misfits.check();
  const LayerConfig& layer = spec.decoder.layer;
  huggingface::Config config;
  config.vocab_size = spec.vocab_size;
  config.d_model = layer.emb_dim;
  config.d_kv = layer.head_dim;
  config.d_ff = layer.mlp_dim;
  config.num_heads = layer.num_heads;
  config.num_layers = spec.encoder->num_layers;
  config.num_decoder_layers = spec.decoder.num_layers;
  config.num_buckets = layer.num_buckets;
  config.max_distance = layer.max_distance;
  config.dropout_rate = layer.dropout_rate;
  config.tie_word_embeddings = config.scale_decoder_outputs = spec.logits_via_embedding;
  config.separate_embeddings = spec.separate_embeddings;
  misfits.unless(!layer.scale_attn_logits, "scale_attn_logits = True: T5's scores are not scaled");
  misfits.unless(!layer.rotary_max_timescale, "rotary embeddings: T5's positions are biases");
  misfits.unless(layer.num_buckets > 0, "no relative position biases: T5's positions are those");
  misfits.unless(!layer.shares_kv(), "multi-query attention: T5's heads have keys of their own");
  set_activation(layer, config, misfits);
  const bool has_experts = spec.has_experts();
  config.model_type = has_experts                            ? "switch_transformers"
                      : !layer.shared_relative_position_bias ? "umt5"
                                                             : "t5";
  misfits.unless(!spec.separate_embeddings || (has_experts && !spec.logits_via_embedding),
                 "encoder and decoder have embeddings of their own, which untied Switch "
                 "Transformers alone have");
  for (const StackSpec* stack : {&*spec.encoder, &spec.decoder}) {
    set_experts(*stack, config, misfits);
    set_layers(*stack, misfits);
  }
  misfits.unless(layer.shared_relative_position_bias || !has_experts,
                 "experts and a relative position bias in each layer");
  misfits.check();
  return config;
}

}  // namespace quintet
