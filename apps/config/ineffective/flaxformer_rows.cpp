// What gin files of flaxformer's models may bind and models/flaxformer.cpp does not read.

#include "apps/config/ineffective/rows.h"
#include "runtime/gin/config.h"

namespace quintet::ineffective {

using gin::Value;

namespace {

const std::string kT5 = "flaxformer.architectures.t5.t5_architecture.";
const std::string kMoe = "flaxformer.architectures.moe.";
const std::string kComponents = "flaxformer.components.";
const std::string kNorm = kComponents + "layer_norm.T5LayerNorm";
const std::string kBias = kComponents + "relative_position_biases.RelativePositionBiases";
const std::string kEmbed = kComponents + "embedding.Embed";
const std::string kDense = kComponents + "dense.DenseGeneral";
const std::string kMlp = kComponents + "dense.MlpBlock";
const std::string kAttention =
    kComponents + "attention.dense_attention.MultiHeadDotProductAttention";
const std::string kMultiQuery =
    kComponents + "attention.dense_attention.MultiQueryDotProductAttention";
const std::vector<std::string> kAttentions = {kAttention, kMultiQuery};
const std::string kExperts = kMoe + "moe_layers.MoeLayer";
const std::string kRouterWeights = kMoe + "routing.RouterWeights";
const std::vector<std::string> kRouters = {kMoe + "routing.TokensChooseMaskedRouter",
                                           kMoe + "routing.TokensChooseScatterRouter",
                                           kMoe + "routing.ExpertsChooseMaskedRouter"};
const std::string kFused =
    "flaxformer.architectures.t5.parallel_fused_decoder.ParallelFusedDecoderLayer";
const std::vector<std::string> kLayers = {kFused, kT5 + "EncoderLayer", kT5 + "DecoderLayer",
                                          kMoe + "moe_architecture.SparseEncoderLayer",
                                          kMoe + "moe_architecture.SparseDecoderLayer"};
const std::vector<std::string> kStacks = {kT5 + "Encoder", kT5 + "Decoder",
                                          kMoe + "moe_architecture.SparseEncoder",
                                          kMoe + "moe_architecture.SparseDecoder"};

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

bool is_architectures_dtype(const Value& value, const gin::Config& config) {
  for (const std::string& dtype : {kT5 + "DecoderOnly.dtype", kT5 + "EncoderDecoder.dtype"})
    if (config.query(dtype) != nullptr) return value == config.evaluate(dtype);
  return value == Value("float32");
}

/// Numbers and how they are computed.
std::vector<Row> rows_of_numbers() {
  return {
      {joined({kNorm, kBias, kEmbed, kMlp, kAttention, kMultiQuery, kExperts}, kStacks), "dtype",
       kWarned, "the dtype of t5_architecture.EncoderDecoder or DecoderOnly is every part's",
       is_architectures_dtype},
      {joined({kDense, kRouterWeights}, kRouters), "dtype", kWarned,
       "logits and routers are computed in float32", is_one_of({"float32"})},
      {{kEmbed}, "attend_dtype", kWarned, "logits are computed in float32", is_one_of({"float32"})},
      {kAttentions, "float32_logits", kWarned, "they are float32 with any value", always},
      {{kDense, kMlp, kAttention, kMultiQuery, kExperts, kRouterWeights},
       "precision",
       kWarned,
       "products of float32 are exact to float32 with any precision"},
      {{kNorm}, "epsilon", kRefused, "this network's is 1e-6", is_one_of({1e-6})},
      {{kNorm}, "scale_init", kRefused, "scales begin with 1"},
      {{kNorm}, "conv", kRefused, "this network has no convolutions"},
      {{kMlp}, "intermediate_conv", kRefused, "this network has no convolutions"},
      {kAttentions, "q_conv", kRefused, "this network has no convolutions"},
      {kAttentions, "k_conv", kRefused, "this network has no convolutions"},
      {kAttentions, "v_conv", kRefused, "this network has no convolutions"},
      {kAttentions, "qkv_features", kRefused, "bind num_heads and head_dim"},
      {kAttentions, "broadcast_dropout", kRefused,
       "attention dropout is the same for all positions of a query", is_one_of({true})},
      {kAttentions, "split_head_kernel", kWarned, "kernels have heads and their width in one axis",
       is_one_of({false})},
      {{kAttention}, "kernels_to_fuse", kRefused, "kernels have parameters of their own", is_empty},
      {{kMlp, kFused}, "use_aqt", kRefused, "training is not quantized", is_one_of({false})},
      {{kMlp}, "wi_fused_kernel_init", kWarned, "kernels are not fused", always},
      {{kDense, kMlp, kAttention, kMultiQuery, kRouterWeights},
       "bias_init",
       kWarned,
       "there is no bias",
       always},
      {{kDense, kRouterWeights}, "axis", kRefused, "the last axis is multiplied", is_one_of({-1})},
  };
}

/// Of parallel_fused_decoder.
std::vector<Row> rows_of_fused_layers() {
  return {
      {{kFused}, "weight_params", kRefused, "training is not quantized"},
      {{kFused}, "act_params", kRefused, "training is not quantized"},
      {{kFused},
       "possibly_use_quantized_vars",
       kRefused,
       "training is not quantized",
       is_one_of({false})},
      {{kFused},
       "is_quant_finetune_mode",
       kRefused,
       "training is not quantized",
       is_one_of({false})},
      {{kFused},
       "q_wi_fused_kernel_init",
       kRefused,
       "kernels begin as kernel_init of self_attention says"},
      {{kFused},
       "kv_fused_kernel_init",
       kRefused,
       "kernels begin as kernel_init of self_attention says"},
      {{kFused},
       "o_wo_fused_kernel_init",
       kRefused,
       "kernels begin as kernel_init of self_attention says"},
      {{kFused}, "dense_general_cls_factory", kRefused, "products are dense.DenseGeneral's"},
  };
}

/// Initial numbers and dropout.
std::vector<Row> rows_of_randomness() {
  return {
      {{kExperts},
       "dropout_rate",
       kWarned,
       "flaxformer does not read it either; intermediate_dropout_rate of the expert acts"},
      {{kExperts},
       "split_params",
       kWarned,
       "every expert has random numbers of its own",
       is_one_of({true})},
      {{"flax.linen.initializers.variance_scaling"},
       "in_axis",
       kRefused,
       "products are over the last axis"},
      {{"flax.linen.initializers.variance_scaling"},
       "out_axis",
       kRefused,
       "products are over the last axis"},
      {{"flax.linen.initializers.variance_scaling", "flax.linen.initializers.normal"},
       "dtype",
       kWarned,
       "parameters are float32",
       is_one_of({"float32"})},
      {{"flax.linen.Dropout"},
       "broadcast_dims",
       kRefused,
       "dropout is the same for all positions of a sequence; bind (-2,)",
       are({-2})},
      {{"flax.linen.Dropout"}, "deterministic", kRefused, "training drops, evaluation does not"},
      {{"flax.linen.Dropout"}, "rng_collection", kWarned, "random numbers are Threefry's"},
  };
}

/// What layers and stacks are made of.
std::vector<Row> rows_of_structure() {
  return {
      {joined(kLayers, kStacks), "layer_norm_factory", kRefused,
       "layer_norm.T5LayerNorm is this network's", is_named(kNorm)},
      {kLayers, "shared_relative_position_bias", kRefused,
       "bind shared_relative_position_bias_factory of the stack"},
      {kStacks, "capture_gradients", kWarned, "T5X's methods make no gradients of inputs",
       is_one_of({false})},
      {kStacks, "position_embedder_factory", kRefused, "positions are relative"},
      {kStacks, "shared_token_embedder", kRefused,
       "bind shared_token_embedder_factory of t5_architecture.EncoderDecoder, or the stack's "
       "token_embedder_factory"},
      {kStacks, "layer_remat", kWarned, "what a step needs is kept", is_one_of({"none", "legacy"})},
      {{kEmbed}, "cast_input_dtype", kWarned, "ids are int32", is_one_of({"int32"})},
      {{kEmbed}, "one_hot", kWarned, "rows are looked up, which gives the same numbers", always},
      {{kEmbed},
       "name",
       kWarned,
       "the embeddings are token_embedder",
       is_one_of({"token_embedder"})},
  };
}

/// How arrays are sharded, which PjitPartitioner's rules say.
std::vector<Row> rows_of_sharding() {
  const std::string rules = "partitioning.standard_logical_axis_rules say how arrays are sharded";
  return {
      {joined({kMlp}, kLayers), "activation_partitioning_dims", kWarned, rules, is_one_of({1})},
      {joined({kT5 + "EncoderDecoder"}, kStacks), "spmd_annotations", kWarned, rules},
      {{kBias}, "head_axis_name", kWarned, rules, is_one_of({"heads"})},
      {{kEmbed}, "axes", kWarned, rules, are({"vocab", "embed"})},
      {{kEmbed}, "input_axis_names", kWarned, rules, are({"batch", "length"})},
      {{kDense}, "kernel_axis_names", kWarned, rules, are({"embed", "vocab"})},
      {{kRouterWeights}, "kernel_axis_names", kWarned, rules, are({"embed", "unmodeled"})},
      {{kDense}, "reshaped_kernel_axis_name", kWarned, rules},
      {{kDense, kRouterWeights}, "reshape_kernel", kWarned, rules, is_one_of({true})},
      {{kMlp}, "input_axis_name", kWarned, rules, is_one_of({"embed", "mlp_embed"})},
      {{kMlp}, "output_axis_name", kWarned, rules, is_one_of({"embed", "mlp_embed"})},
      {{kMlp}, "activations_axis_name", kWarned, rules, is_one_of({"mlp_activations"})},
      {{kMlp}, "intermediate_axis_name", kWarned, rules, is_one_of({"mlp", "expert_mlp"})},
      {{kMlp}, "data_sharding_constraints", kWarned, rules, are({"expert_replicas", "mlp"})},
      {{kExperts},
       "num_model_partitions",
       kWarned,
       rules,
       is_named("t5x.contrib.moe.partitioning.compute_num_model_partitions")},
      {{kExperts}, "input_hidden_dims_axes", kWarned, rules, are({"mlp_embed"})},
      {{kExperts}, "output_hidden_dims_axes", kWarned, rules, are({"mlp_embed"})},
  };
}

}  // namespace

std::vector<Row> rows_of_flaxformer() {
  std::vector<Row> rows = rows_of_numbers();
  for (const auto& more :
       {rows_of_fused_layers(), rows_of_randomness(), rows_of_structure(), rows_of_sharding()})
    rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

}  // namespace quintet::ineffective
