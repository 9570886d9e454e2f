#pragma once
// A stack's parameters, and the one walk over them that loads them wherever they are computed with. A
// Form says what that place makes of a vector, a matrix, the projections of one input, an MLP, experts and
// a relative position bias; its Loader makes each of the parameters of a name.
//
//   const Loader load(...);   // PackedNetwork's for the CPU, GpuWeights' for a GPU
//   const StackWeights<Loader::Form> decoder = load_stack(load, spec.decoder);

#include <string>
#include <variant>
#include <vector>

#include "models/spec.h"

namespace quintet::decoding {

/// Attention and the norm before it.
template <class Form>
struct AttentionWeights {
  typename Form::Vector norm;            // [embed]
  typename Form::Projections in;         // self: query, key, value; cross: query
  typename Form::Projections key_value;  // cross only: of the encoder's output
  typename Form::Matrix out;             // [joined_kv, embed]
  typename Form::Bias relative_bias;     // self only
};

/// A dense MLP or a mixture of experts, and the norm before it.
template <class Form>
struct FeedForwardWeights {
  typename Form::Vector norm;  // [embed]
  std::variant<typename Form::Mlp, typename Form::Experts> mlp;
};

template <class Form>
struct LayerWeights {
  AttentionWeights<Form> self;
  std::optional<AttentionWeights<Form>> cross;
  std::vector<FeedForwardWeights<Form>> feed_forward;  // one, or with ST-MoE's extra MLP two
  /// One norm for all parts; `out` and `wo`, but an extra MLP's, are divided by StackSpec::sum_divisor (factor_of).
  bool parallel = false;
};

template <class Form>
struct StackWeights {
  std::vector<LayerWeights<Form>> layers;
  typename Form::Vector norm;  // after the last layer
};

/// What multiplies with projections: steps of a few rows, whole sequences.
struct ReadBy {
  bool steps = false, sequences = false;
};

template <class Loader>
LayerWeights<typename Loader::Form> load_layer(const Loader& load, const StackSpec& stack,
                                               int64_t index,
                                               typename Loader::Form::Bias relative_bias) {
  using Form = typename Loader::Form;
  const LayerConfig& c = stack.layer;
  const std::string scope = stack.layer_scope(index) + "/";
  const bool parallel = stack.kind(index).is_parallel();
  const auto norm = [&](const std::string& block) {
    const bool is_shared = parallel && block != "extra_mlp";
    return load.vector(
        scope + (is_shared ? "layer_norm/scale" : "pre_" + block + "_layer_norm/scale"), c.emb_dim);
  };
  const std::string self = stack.is_encoder ? "attention" : "self_attention";
  LayerWeights<Form> layer{
      .self = {.norm = norm(self),
               .in = load.projections(
                   scope + self, {"query", "key", "value"},
                   {.steps = !stack.is_encoder, .sequences = !stack.cross_attention}),
               .key_value = {},
               .out = load.matrix(scope + self + "/out/kernel", c.joined_kv(), c.emb_dim),
               .relative_bias = std::move(relative_bias)},
      .cross = {},
      .feed_forward = {},
      .parallel = parallel};
  if (stack.cross_attention) {
    const std::string cross = scope + "encoder_decoder_attention";
    layer.cross = {.norm = norm("cross_attention"),
                   .in = load.projections(cross, {"query"}, {.steps = true}),
                   .key_value = load.projections(cross, {"key", "value"}, {.sequences = true}),
                   .out = load.matrix(cross + "/out/kernel", c.joined_kv(), c.emb_dim),
                   .relative_bias = {}};
  }
  const auto dense = [&](const std::string& name) {
    return FeedForwardWeights<Form>{norm(name),
                                    load.mlp(scope + name, c.mlp_dim, c.mlp_activations)};
  };
  if (const SparseStack* sparse = stack.sparse_at(index)) {
    layer.feed_forward.push_back({norm("mlp"), load.experts(scope + "mlp", sparse->moe)});
  } else {
    layer.feed_forward.push_back(dense("mlp"));
  }
  if (stack.kind(index).extra_mlp) layer.feed_forward.push_back(dense("extra_mlp"));
  return layer;
}

template <class Loader>
StackWeights<typename Loader::Form> load_stack(const Loader& load, const StackSpec& stack) {
  if (!stack.is_encoder && stack.num_layers == 0) return {};  // of an encoder alone
  const std::string scope = stack.scope();
  StackWeights<typename Loader::Form> weights{
      .layers = {},
      .norm = load.vector(fmt::format("{}/{}_norm/scale", scope, scope), stack.layer.emb_dim)};
  const auto bias_of = [&](const std::string& of) -> typename Loader::Form::Bias {
    if (stack.layer.num_buckets == 0) return {};
    return load.relative_bias(of + "/relpos_bias/rel_embedding", stack);
  };
  const bool shared = stack.layer.shared_relative_position_bias;
  typename Loader::Form::Bias bias;
  if (shared) bias = bias_of(scope);
  for (int64_t i = 0; i < stack.num_layers; ++i)
    weights.layers.push_back(
        load_layer(load, stack, i, shared ? bias : bias_of(stack.layer_scope(i))));
  return weights;
}

}  // namespace quintet::decoding
