#include "models/network.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "kernels/mlp/mlp.h"
#include "runtime/execution/tape.h"

namespace quintet {
namespace {

Param relative_bias_table(const Scope& scope, const LayerConfig& config) {
  return (scope / "relpos_bias")
      .param("rel_embedding",
             {{axis::kHeads, config.num_heads}, {axis::kRelposBuckets, config.num_buckets}},
             with_scale(config, t5_init::relative_bias()));
}

/// One that the layers of a stack share, one for each, or none.
std::vector<Param> relative_bias_tables(const Scope& scope, const StackSpec& spec) {
  if (spec.layer.num_buckets == 0) return {};
  if (spec.layer.shared_relative_position_bias) return {relative_bias_table(scope, spec.layer)};
  std::vector<Param> tables;
  for (int64_t i = 0; i < spec.num_layers; ++i)
    tables.push_back(relative_bias_table(scope / fmt::format("layers_{}", i), spec.layer));
  return tables;
}

/// That of layer i, or absent.
Tensor table_of(const std::vector<Param>& tables, size_t i) {
  return tables.empty() ? Tensor() : tables[std::min(i, tables.size() - 1)].tensor();
}

Param embedding_table(const Scope& scope, int64_t vocab_size, int64_t emb_dim) {
  return (scope / "token_embedder")
      .param("embedding", {{axis::kVocab, vocab_size}, {axis::kEmbed, emb_dim}},
             t5_init::embedding());
}

Param logits_kernel(const Scope& scope, int64_t vocab_size, const LayerConfig& config) {
  return (scope / "logits_dense")
      .param("kernel", {{axis::kEmbed, config.emb_dim}, {axis::kVocab, vocab_size}},
             with_scale(config, t5_init::mlp_kernel()));
}

Projection make_projection(const ModelSpec& spec, Param embedding, Param dense) {
  return {spec.logits_via_embedding ? embedding : dense, spec.logits_via_embedding,
          spec.logit_scale()};
}

Remat remat_of(const std::string& policy) {
  if (policy == "none") return Remat::kNone;
  if (policy == "minimal") return Remat::kMinimal;
  QT_CHECK(policy == "full", "remat_policy: expected 'none', 'minimal' or 'full', found '{}'",
           policy);
  return Remat::kFull;
}

constexpr int64_t kMostLayers = 10'000;  // ten times the deepest Transformer published

void check_layers(const char* name, int64_t count) {
  QT_CHECK(count >= 0 && count <= kMostLayers, "{}: expected 0 to {} layers, found {}", name,
           kMostLayers, count);
}

/// What T5Config and TransformerConfig share.
template <typename Config>
void check_common(const Config& config) {
  for (const auto& [name, size] : {std::pair{"vocab_size", config.vocab_size},
                                   {"emb_dim", config.emb_dim},
                                   {"num_heads", config.num_heads},
                                   {"head_dim", config.head_dim},
                                   {"mlp_dim", config.mlp_dim}})
    QT_CHECK(size > 0, "{}: expected a positive number, found {}", name, size);
  QT_CHECK(config.num_buckets >= 0, "num_buckets: expected 0 (no bias) or more, found {}",
           config.num_buckets);
  QT_CHECK(config.num_buckets == 0 || config.max_distance > 0,
           "max_distance: expected a positive number, found {}", config.max_distance);
  QT_CHECK(config.dropout_rate >= 0 && config.dropout_rate < 1,
           "dropout_rate: expected 0 <= rate < 1, found {}", config.dropout_rate);
  QT_CHECK(config.mlp_activations.size() == 1 || config.mlp_activations.size() == 2,
           "mlp_activations: expected one or two names, found {}", config.mlp_activations.size());
  for (const std::string& name : config.mlp_activations)
    activation_from_name(name, "mlp_activations");
  QT_CHECK(config.dtype != "float16",
           "dtype: float16 is refused, T5's activations overflow its range (65,504); use bfloat16");
  QT_CHECK(config.dtype == "float32" || config.dtype == "bfloat16",
           "dtype: expected 'float32' or 'bfloat16', found '{}'", config.dtype);
  remat_of(config.remat_policy);
}

using LayerFunction = std::function<Tensor(const Tensors&, LayerRouting*)>;

/// Runs one layer, of which remat computes some or all again for the backward pass. A sparse layer's
/// routing goes to the context.
Tensor run_layer(Remat policy, const Tensors& in, const Context& context, LayerFunction layer) {
  const auto run = [layer = std::move(layer)](const Tensors& x) {
    LayerRouting routing;
    Tensors out{layer(x, &routing)};
    if (!routing.absent())
      for (const Tensor& t : routing.tensors()) out.push_back(t);
    return out;
  };
  const Tensors out = policy == Remat::kNone ? run(in) : remat(run, in, policy == Remat::kMinimal);
  if (out.size() > 1 && context.routings != nullptr)
    context.routings->push_back({out[1], out[2], out[3], out[4]});
  return out[0];
}

/// What layer i made of its input, under the name that flaxformer's layer sows it by.
void sow_layer(const Context& context, const StackSpec& spec, int64_t i, const Tensor& y) {
  context.sow(fmt::format("{}/{}activations", spec.layer_scope(i),
                          spec.kind(i).extra_mlp ? "extra_mlp_" : ""),
              y);
}

std::deque<ExtraMlp> extra_mlps(const Scope& layer, const StackSpec& stack, int64_t i) {
  std::deque<ExtraMlp> extra;
  if (stack.kind(i).extra_mlp) extra.emplace_back(layer, stack.layer);
  return extra;
}

/// Modules of flaxformer, and of T5X's decoders alone, name their dropouts; in other networks Flax counts them.
std::string flax_name(const StackSpec& stack, const char* name, int place) {
  const bool is_decoder_alone = !stack.is_encoder && !stack.cross_attention;
  return stack.layer.masks_padding || is_decoder_alone ? name : fmt::format("Dropout_{}", place);
}

std::string self_attention_of(const StackSpec& stack) {
  return stack.is_encoder ? "attention" : "self_attention";
}

}  // namespace

void check(const T5Config& config) {
  check_layers("num_encoder_layers", config.num_encoder_layers);
  check_layers("num_decoder_layers", config.num_decoder_layers);
  check_common(config);
}

void check(const TransformerConfig& config) {
  check_layers("num_layers", config.num_layers);
  check_common(config);
}

Tensor Projection::logits(const Tensor& y) const {
  return ops::scale(tied ? ops::matmul_t(y, kernel) : ops::matmul(y, kernel), logit_scale);
}

AnyMlp::AnyMlp(const Scope& scope, const LayerConfig& config, const SparseStack* sparse)
    : mlp(sparse != nullptr ? std::variant<MlpBlock, MoeLayer>(MoeLayer(scope, config, sparse->moe))
                            : MlpBlock(scope, config)) {}

Param AnyMlp::first() const {
  const auto* dense = std::get_if<MlpBlock>(&mlp);
  return dense != nullptr ? dense->wi_0 : Param();
}

Tensor AnyMlp::operator()(const DenseInput& x, const Context& context,
                          LayerRouting* routing) const {
  if (const auto* sparse = std::get_if<MoeLayer>(&mlp)) return (*sparse)(x.x, context, routing);
  return std::get<MlpBlock>(mlp)(x, context);
}

ExtraMlp::ExtraMlp(const Scope& layer, const LayerConfig& config)
    : sown(layer.path() + "/activations"),
      norm(layer / "pre_extra_mlp_layer_norm", config),
      mlp(layer / "extra_mlp", config),
      dropout(layer, "extra_mlp_dropout", "post_extra_mlp_dropout", config) {}

Residual ExtraMlp::operator()(Residual residual, const Tensor& token_mask,
                              const Context& context) const {
  const auto [x, normed] = norm(std::move(residual), token_mask, mlp.wi_0, context);
  context.sow(sown, x);
  return {x, mlp(normed, context), dropout(context)};
}

SequentialLayer::SequentialLayer(const Scope& scope, const StackSpec& stack, int64_t i)
    : pre_self_attention_layer_norm(scope / ("pre_" + self_attention_of(stack) + "_layer_norm"),
                                    stack.layer),
      self_attention(scope / self_attention_of(stack), stack.layer),
      self_attention_dropout(
          scope, self_attention_of(stack) + "_dropout",
          flax_name(stack,
                    stack.is_encoder ? "post_attention_dropout" : "post_self_attention_dropout", 0),
          stack.layer),
      cross_attention_dropout(scope, "cross_attention_dropout",
                              flax_name(stack, "post_cross_attention_dropout", 1), stack.layer),
      pre_mlp_layer_norm(scope / "pre_mlp_layer_norm", stack.layer),
      mlp(scope / "mlp", stack.layer, stack.sparse_at(i)),
      mlp_dropout(scope, "mlp_dropout",
                  flax_name(stack, "post_mlp_dropout", stack.cross_attention ? 2 : 1), stack.layer),
      extra(extra_mlps(scope, stack, i)),
      is_encoder(stack.is_encoder) {
  if (!stack.cross_attention) return;
  pre_cross_attention_layer_norm.emplace_back(scope / "pre_cross_attention_layer_norm",
                                              stack.layer);
  encoder_decoder_attention.emplace_back(scope / "encoder_decoder_attention", stack.layer);
}

Tensor SequentialLayer::operator()(const Tensor& x, const Tensor& relative_bias,
                                   const LayerInputs& in, const Context& context,
                                   LayerRouting* routing) const {
  const DenseInput h =
      pre_self_attention_layer_norm(x, in.token_mask, self_attention.query, context);
  Residual residual{x, self_attention(h, h.x, in.self_mask, relative_bias, is_encoder, context),
                    self_attention_dropout(context)};
  if (!encoder_decoder_attention.empty()) {
    const Attention& cross = encoder_decoder_attention[0];
    const auto [y, normed] =
        pre_cross_attention_layer_norm[0](std::move(residual), in.token_mask, cross.query, context);
    residual = {y, cross(normed, in.encoded, in.cross_mask, Tensor(), true, context),
                cross_attention_dropout(context)};
  }
  const auto [y, normed] =
      pre_mlp_layer_norm(std::move(residual), in.token_mask, mlp.first(), context);
  residual = {y, mlp(normed, context, routing), mlp_dropout(context)};
  for (const ExtraMlp& more : extra) residual = more(std::move(residual), in.token_mask, context);
  return residual.sum();
}

ParallelLayer::ParallelLayer(const Scope& scope, const StackSpec& stack, int64_t i)
    : layer_norm(scope / "layer_norm", stack.layer),
      self_attention(scope / self_attention_of(stack), stack.layer),
      mlp(scope / "mlp", stack.layer, stack.sparse_at(i)),
      dropout(scope, "dropout", "dropout", stack.layer),
      extra(extra_mlps(scope, stack, i)),
      is_encoder(stack.is_encoder),
      divisor(stack.sum_divisor(i)) {
  if (stack.cross_attention)
    encoder_decoder_attention.emplace_back(scope / "encoder_decoder_attention", stack.layer);
}

Tensor ParallelLayer::operator()(const Tensor& x, const Tensor& relative_bias,
                                 const LayerInputs& in, const Context& context,
                                 LayerRouting* routing) const {
  const Tensor h = layer_norm(x);
  Tensor y = ops::add(self_attention({h}, h, in.self_mask, relative_bias, is_encoder, context),
                      mlp({h}, context, routing));
  for (const Attention& cross : encoder_decoder_attention)
    y = ops::add(y, cross({h}, in.encoded, in.cross_mask, Tensor(), true, context));
  Residual residual{x, ops::scale(y, 1 / divisor), dropout(context)};
  for (const ExtraMlp& more : extra) residual = more(std::move(residual), in.token_mask, context);
  return residual.sum();
}

FusedParallelLayer::FusedParallelLayer(const Scope& scope, const StackSpec& stack, int64_t)
    : layer_norm(scope / "layer_norm", stack.layer),
      attend(scope / "self_attention", stack.layer, axis::kJoinedKv),
      mlp_dropout(scope / "mlp", "dropout", "Dropout_0", stack.layer),
      dropout(scope, "dropout", "dropout", stack.layer),
      activations(stack.layer.mlp_activations),
      widths(stack.layer.fused_widths()) {
  const LayerConfig& config = stack.layer;
  QT_CHECK(config.mlp_dim % config.num_heads == 0,
           "parallel_fused_decoder: {} heads do not divide the {} columns of the MLP",
           config.num_heads, config.mlp_dim);
  const Axis embed{axis::kEmbed, config.emb_dim};
  const Axis in{axis::kJoinedKv, config.num_heads * (widths[0] + widths[1] + widths[2])};
  const Axis out{axis::kJoinedKv, config.num_heads * (widths[0] + widths[1])};
  const Initializer initial = with_scale(config, t5_init::attention_kernel());
  q_wi_fused = (scope / "q_wi_fused").param("kernel", {embed, in}, initial, true);
  kv_fused = (scope / "kv_fused")
                 .param("kernel", {embed, {axis::kJoinedKv, 2 * config.head_dim}}, initial, true);
  o_wo_fused = (scope / "o_wo_fused").param("kernel", {out, embed}, initial, true);
}

Tensor FusedParallelLayer::operator()(const Tensor& x, const Tensor& relative_bias,
                                      const LayerInputs& in, const Context& context,
                                      LayerRouting*) const {
  const int64_t d = attend.head_dim;
  const Tensors made = dense({layer_norm(x)}, {q_wi_fused, kv_fused}, context);
  const Tensors q_wi = ops::split_heads(made[0], attend.num_heads, widths);
  Tensors qkv = ops::split_heads(made[1], 1, {d, d, 0});
  qkv[2] = qkv[1];
  qkv[1] = std::exchange(qkv[0], q_wi[0]);
  const Tensor found = attend(std::move(qkv), in.self_mask, relative_bias, false, true, context);
  ops::Dropout drops = mlp_dropout(context);
  if (context.t5x_dropout) drops.heads = attend.num_heads;  // they share a token's mask there
  const Tensor h = ops::dropout(ops::gate(q_wi[1], q_wi[2], activations), drops);
  const Tensor y = ops::join_heads({found, h}, attend.num_heads);
  return ops::add(x, dense({y}, std::vector{o_wo_fused}, context)[0], dropout(context));
}

Stack::Stack(const Scope& scope, const StackSpec& spec, Remat remat)
    : spec_(spec),
      input_dropout_(scope, "input_dropout", flax_name(spec, "input_dropout", 0), spec.layer),
      output_dropout_(scope, "output_dropout", flax_name(spec, "output_dropout", 1), spec.layer,
                      !spec.is_encoder || spec.layer.masks_padding),
      relative_biases_(relative_bias_tables(scope, spec)),
      norm_(scope / (spec.scope() + "_norm"), spec.layer),
      remat_(remat) {
  const auto is_fused = [](const LayerKind& kind) { return kind.form == LayerForm::fused; };
  QT_CHECK((!is_fused(spec.dense_layers) && !is_fused(spec.sparse_layers)) ||
               (!spec.is_encoder && !spec.cross_attention && !spec.has_experts()),
           "parallel_fused_decoder: its layers are a decoder's, attend to no encoder and have no "
           "experts");
  const auto add = [&]<class Layer>(std::in_place_type_t<Layer> type, int64_t i) {
    layers_.emplace_back(type, scope / fmt::format("layers_{}", i), spec, i);
  };
  for (int64_t i = 0; i < spec.num_layers; ++i) {
    if (is_fused(spec.kind(i)))
      add(std::in_place_type<FusedParallelLayer>, i);
    else if (spec.kind(i).is_parallel())
      add(std::in_place_type<ParallelLayer>, i);
    else
      add(std::in_place_type<SequentialLayer>, i);
  }
}

Tensor Stack::operator()(const Tensor& x, const LayerInputs& in, const Context& context) const {
  const Context stack = context.sowing(spec_.sows.stack);
  stack.sow(spec_.scope() + "/embedder/output", x);
  Tensor y = ops::dropout(x, input_dropout_(context));  // [batch, length, embed]
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    const Context inner = context.sowing(spec_.layer_sows(index));
    const auto run = [=, this](const Tensors& given, LayerRouting* routing) {
      LayerInputs of_layer = in;
      of_layer.encoded = given[1];
      return std::visit(
          [&](const auto& layer) {
            return layer(given[0], table_of(relative_biases_, i), of_layer, inner, routing);
          },
          layers_[i]);
    };
    y = run_layer(remat_, {y, in.encoded}, inner, run);
    sow_layer(inner, spec_, index, y);
  }
  y = masked(ops::dropout(norm_(y), output_dropout_(context)), in.token_mask);
  stack.sow(spec_.is_encoder ? "encoder/final_encoder_outputs" : "decoder/pre_logits_layer", y);
  return y;
}

Transformer::Transformer(const Scope& scope, const T5Config& config)
    : spec_((check(config), spec_of(config))),
      encoder_embedding_(embedding_table(config.separate_embeddings ? scope / "encoder" : scope,
                                         config.vocab_size, config.emb_dim)),
      decoder_embedding_(config.separate_embeddings
                             ? embedding_table(scope / "decoder", config.vocab_size, config.emb_dim)
                             : encoder_embedding_),
      encoder_(scope / "encoder", *spec_.encoder, remat_of(config.remat_policy)) {
  if (spec_.encoder_only()) return;
  decoder_.emplace(scope / "decoder", spec_.decoder, remat_of(config.remat_policy));
  if (!config.logits_via_embedding)
    logits_dense_ = logits_kernel(scope / "decoder", config.vocab_size, config);
}

Tensor Transformer::encode(const Tensor& tokens, const Tensor& segments,
                           const Context& context) const {
  context.sowing(spec_.encoder->sows.stack).sow("encoder/input_tokens_ids", tokens);
  return encoder_(ops::embed(tokens, encoder_embedding_),
                  {.self_mask = ops::with_ranges(
                       {.query_segments = segments, .key_segments = segments, .prefix = {}}),
                   .token_mask = spec_.encoder->layer.masks_padding ? segments : Tensor()},
                  context);
}

Tensor Transformer::decode(const Tensor& encoded, const Tensor& encoder_segments,
                           const Tensor& input_tokens, const Tensor& segments,
                           const Tensor& token_mask, const Context& context) const {
  QT_CHECK(decoder_.has_value(),
           "this model is an encoder alone: it has embeddings (quintet generate --embed=mean, "
           "/v1/embeddings of quintet serve), but no answers, scores or loss");
  const ops::AttentionMask self_mask = ops::with_ranges(
      {.query_segments = segments, .key_segments = segments, .prefix = {}, .causal = true});
  const ops::AttentionMask cross_mask = ops::with_ranges(
      {.query_segments = segments, .key_segments = encoder_segments, .prefix = {}});
  return (*decoder_)(ops::embed(input_tokens, decoder_embedding_),
                     {.encoded = encoded,
                      .self_mask = self_mask,
                      .cross_mask = cross_mask,
                      .token_mask = spec_.decoder.layer.masks_padding ? token_mask : Tensor()},
                     context);
}

Projection Transformer::projection() const {
  return make_projection(spec_, decoder_embedding_, logits_dense_);
}

DecoderOnlyTransformer::DecoderOnlyTransformer(const Scope& scope, const TransformerConfig& config)
    : spec_((check(config), spec_of(config))),
      embedding_(embedding_table(scope / "decoder", config.vocab_size, config.emb_dim)),
      decoder_(scope / "decoder", spec_.decoder, remat_of(config.remat_policy)) {
  if (!config.logits_via_embedding)
    logits_dense_ = logits_kernel(scope / "decoder", config.vocab_size, config);
}

Tensor DecoderOnlyTransformer::decode(const Tensor& input_tokens, const Tensor& segments,
                                      const Tensor& prefix, const Tensor& token_mask,
                                      const Context& context) const {
  const ops::AttentionMask mask = ops::with_ranges(
      {.query_segments = segments, .key_segments = segments, .prefix = prefix, .causal = true});
  return decoder_(ops::embed(input_tokens, embedding_),
                  {.self_mask = mask, .token_mask = token_mask}, context);
}

Projection DecoderOnlyTransformer::projection() const {
  return make_projection(spec_, embedding_, logits_dense_);
}

}  // namespace quintet
