#include "models/layers.h"

#include <cmath>

namespace quintet {
namespace {

/// FNV-1a: a stable number for a name.
uint32_t hash(const std::string& text) {
  uint32_t h = 2166136261u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
  return h;
}

}  // namespace

DropoutPlace::DropoutPlace(const Scope& scope, const std::string& name, double rate,
                           bool broadcast_length)
    : id_(hash((scope / name).path())), rate_(rate), broadcast_length_(broadcast_length) {
  QT_CHECK(rate >= 0 && rate < 1, "dropout_rate: expected 0 <= rate < 1, found {}", rate);
}

ops::Dropout DropoutPlace::operator()(const Context& context) const {
  if (!context.train || rate_ == 0) return {};
  return {rate_, fold_in(context.dropout_key, id_), broadcast_length_};
}

RmsNorm::RmsNorm(const Scope& scope, const LayerConfig& config)
    : scale(scope.param("scale", {{axis::kEmbed, config.emb_dim}}, t5_init::norm_scale())) {}

Tensor RmsNorm::operator()(const Tensor& x) const { return ops::rms_norm(x, scale); }

MlpBlock::MlpBlock(const Scope& scope, const LayerConfig& config)
    : activations(config.mlp_activations), dropout(scope, "dropout", config.dropout_rate) {
  const Axis embed{axis::kEmbed, config.emb_dim}, mlp{axis::kMlp, config.mlp_dim};
  QT_CHECK(activations.size() == 1 || activations.size() == 2,
           "mlp_activations: expected one or two names, found {}", activations.size());
  const bool gated = activations.size() == 2;
  wi_0 = (scope / (gated ? "wi_0" : "wi")).param("kernel", {embed, mlp}, t5_init::mlp_kernel());
  if (gated) wi_1 = (scope / "wi_1").param("kernel", {embed, mlp}, t5_init::mlp_kernel());
  wo = (scope / "wo").param("kernel", {mlp, embed}, t5_init::mlp_kernel());
}

Tensor MlpBlock::operator()(const Tensor& x, const Context& context) const {
  const Tensor h = ops::mlp_in(x, wi_0, wi_1.absent() ? Tensor() : wi_1.tensor(),
                               activations);                  // [batch, length, mlp]
  return ops::matmul(ops::dropout(h, dropout(context)), wo);  // [batch, length, embed]
}

Attention::Attention(const Scope& scope, const LayerConfig& config)
    : num_heads(config.num_heads),
      score_scale(config.scale_attn_logits ? 1 / std::sqrt(static_cast<double>(config.head_dim)) : 1),
      dropout(scope, "dropout", config.dropout_rate) {
  const Axis embed{axis::kEmbed, config.emb_dim};
  const Axis joined{axis::kJoinedKv, config.num_heads * config.head_dim};
  query =
      (scope / "query").param("kernel", {embed, joined}, t5_init::query_kernel(config.head_dim));
  key = (scope / "key").param("kernel", {embed, joined}, t5_init::attention_kernel());
  value = (scope / "value").param("kernel", {embed, joined}, t5_init::attention_kernel());
  out = (scope / "out").param("kernel", {joined, embed}, t5_init::attention_kernel());
}

Tensor Attention::operator()(const Tensor& x, const Tensor& memory, const ops::AttentionMask& mask,
                             const Tensor& relative_bias, bool bidirectional,
                             const Context& context) const {
  const ops::Dropout weights_dropout = dropout(context);
  const Tensor y =
      ops::attention(ops::matmul(x, query), ops::matmul(memory, key), ops::matmul(memory, value),
                     relative_bias, mask,
                     {.num_heads = num_heads,
                      .scale = score_scale,
                      .bidirectional = bidirectional,
                      .dropout_rate = weights_dropout.rate,
                      .dropout_key = weights_dropout.key});  // [batch, length, joined_kv]
  return ops::matmul(y, out);                                // [batch, length, embed]
}

}  // namespace quintet
