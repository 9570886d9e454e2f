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

Initializer with_scale(const LayerConfig& config, const Initializer& initializer) {
  if (config.init_scale == 1) return initializer;
  return scaled(initializer, static_cast<float>(std::sqrt(config.init_scale)));
}

DropoutPlace::DropoutPlace(const Scope& scope, const std::string& name, double rate,
                           bool broadcast_length)
    : id_(hash((scope / name).path())), rate_(rate), broadcast_length_(broadcast_length) {
  QT_CHECK(rate >= 0 && rate < 1, "dropout_rate: expected 0 <= rate < 1, found {}", rate);
}

ops::Dropout DropoutPlace::operator()(const Context& context) const {
  if (!context.train || rate_ == 0) return {};
  return {rate_, key(context), broadcast_length_};
}

RmsNorm::RmsNorm(const Scope& scope, const LayerConfig& config)
    : scale(scope.param("scale", {{axis::kEmbed, config.emb_dim}}, t5_init::norm_scale())) {}

Tensor RmsNorm::operator()(const Tensor& x) const { return ops::rms_norm(x, scale); }

ops::ResidualNorm RmsNorm::operator()(Residual residual) const {
  return ops::add_rms_norm(residual.x, residual.y, scale, residual.dropout);
}

MlpBlock::MlpBlock(const Scope& scope, const LayerConfig& config)
    : activations(config.mlp_activations), dropout(scope, "dropout", config.dropout_rate) {
  const Axis embed{axis::kEmbed, config.emb_dim}, mlp{axis::kMlp, config.mlp_dim};
  QT_CHECK(activations.size() == 1 || activations.size() == 2,
           "mlp_activations: expected one or two names, found {}", activations.size());
  const bool gated = activations.size() == 2;
  const Initializer initial = with_scale(config, t5_init::mlp_kernel());
  wi_0 = (scope / (gated ? "wi_0" : "wi")).param("kernel", {embed, mlp}, initial);
  if (gated) wi_1 = (scope / "wi_1").param("kernel", {embed, mlp}, initial);
  wo = (scope / "wo").param("kernel", {mlp, embed}, initial);
}

Tensor MlpBlock::operator()(const Tensor& x, const Context& context) const {
  return ops::mlp(x, wi_0, wi_1.absent() ? Tensor() : wi_1.tensor(), wo, activations,
                  dropout(context));  // [batch, length, embed]
}

Attention::Attention(const Scope& scope, const LayerConfig& config)
    : num_heads(config.num_heads),
      max_distance(config.max_distance),
      score_scale(config.scale_attn_logits ? 1 / std::sqrt(static_cast<double>(config.head_dim))
                                           : 1),
      dropout(scope, "dropout", config.dropout_rate) {
  const Axis embed{axis::kEmbed, config.emb_dim};
  const Axis joined{axis::kJoinedKv, config.joined_kv()};
  const Initializer initial = with_scale(config, t5_init::attention_kernel());
  query = (scope / "query")
              .param("kernel", {embed, joined},
                     with_scale(config, t5_init::query_kernel(config.head_dim)));
  key = (scope / "key").param("kernel", {embed, joined}, initial);
  value = (scope / "value").param("kernel", {embed, joined}, initial);
  out = (scope / "out").param("kernel", {joined, embed}, initial);
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
                      .max_distance = max_distance,
                      .bidirectional = bidirectional,
                      .dropout_rate = weights_dropout.rate,
                      .dropout_key = weights_dropout.key});  // [batch, length, joined_kv]
  return ops::matmul(y, out);                                // [batch, length, embed]
}

}  // namespace quintet
