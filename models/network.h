#pragma once
// T5: encoder and decoder, after t5x/examples/t5/network.py (arXiv:1910.10683, 2002.05202), with sparse
// layers after flaxformer/architectures/moe/moe_architecture.py.
//
//   Transformer network(Scope(parameters), T5Config{...});
//   Tensor memory = network.encode(tokens, segments, context);

#include <deque>
#include <optional>
#include <variant>

#include "models/layers.h"
#include "models/spec.h"

namespace quintet {

/// gin: network.T5Config. The fields of LayerConfig, and:
struct T5Config : LayerConfig {
  int64_t vocab_size = 0;
  std::string dtype = "float32";  // of activations on a GPU; the CPU computes in float32
  int64_t num_encoder_layers = 6;
  int64_t num_decoder_layers = 6;
  bool logits_via_embedding = false;
  std::string remat_policy = "none";  // as T5X's; see Remat
  bool separate_embeddings = false;   // flaxformer: encoder and decoder have a table each
  StackConfig encoder, decoder;
};

/// Throws a usage error that begins with the field's name unless the network can have these sizes, rates and names.
void check(const T5Config& config);

/// gin: network.TransformerConfig of T5X's decoder_only example.
struct TransformerConfig : LayerConfig {
  int64_t vocab_size = 0;
  std::string dtype = "float32";
  int64_t num_layers = 6;
  bool logits_via_embedding = false;
  std::string remat_policy = "none";
  StackConfig decoder;
};
void check(const TransformerConfig& config);

/// What of a layer is computed again for the backward pass, so that it needs no memory until then: nothing;
/// all but products with parameters; everything.
enum class Remat { kNone, kMinimal, kFull };

/// Where the output projection is and how logits are scaled.
struct Projection {
  Tensor kernel;  // [embed, vocab], or [vocab, embed] if tied
  bool tied = false;
  double logit_scale = 1;
  /// y: [batch, length, embed] -> [batch, length, vocab]
  Tensor logits(const Tensor& y) const;
};

/// What a layer reads beside its rows.
struct LayerInputs {
  Tensor encoded{};  // [batch, encoder length, embed]; absent: no cross-attention
  ops::AttentionMask self_mask{}, cross_mask{};  // of a decoder as T5X's make_decoder_mask
  Tensor token_mask{};  // int32 [batch, length], 0 for tokens that enter blocks as zeros; or absent
};

/// A dense MLP behind a layer's own (LayerKind::extra_mlp).
struct ExtraMlp {
  std::string sown;  // name of what the layer makes before it
  RmsNorm norm;
  MlpBlock mlp;
  DropoutPlace dropout;
  ExtraMlp(const Scope& layer, const LayerConfig& config);
  /// x + MLP(norm(x)), x the residual's sum.
  Residual operator()(Residual residual, const Tensor& token_mask, const Context& context) const;
};

/// An MLP, or experts, which set *routing.
struct AnyMlp {
  std::variant<MlpBlock, MoeLayer> mlp;
  AnyMlp(const Scope& scope, const LayerConfig& config, const SparseStack* sparse);
  /// The first layer, as fp8_scales() wants it; of experts absent.
  Param first() const;
  Tensor operator()(const DenseInput& x, const Context& context, LayerRouting* routing) const;
};

// Layers. All are made as layer i of a stack in its scope, and called alike:
//
//   x: [batch, length, embed] -> the same; relative_bias: [heads, buckets], or absent. With experts they set *routing.

/// T5's: x + self-attention, + cross-attention, + MLP, each of the norm of what was there before it.
struct SequentialLayer {
  RmsNorm pre_self_attention_layer_norm;
  Attention self_attention;
  DropoutPlace self_attention_dropout;
  std::deque<RmsNorm> pre_cross_attention_layer_norm;  // none or one
  std::deque<Attention> encoder_decoder_attention;     // none or one
  DropoutPlace cross_attention_dropout;
  RmsNorm pre_mlp_layer_norm;
  AnyMlp mlp;
  DropoutPlace mlp_dropout;
  std::deque<ExtraMlp> extra;  // none or one
  bool is_encoder;
  SequentialLayer(const Scope& scope, const StackSpec& stack, int64_t i);
  Tensor operator()(const Tensor& x, const Tensor& relative_bias, const LayerInputs& in,
                    const Context& context, LayerRouting* routing) const;
};

/// LayerForm::parallel: x + dropout(sum of attention and MLP / StackSpec::sum_divisor).
struct ParallelLayer {
  RmsNorm layer_norm;
  Attention self_attention;
  std::deque<Attention> encoder_decoder_attention;  // none or one
  AnyMlp mlp;
  DropoutPlace dropout;
  std::deque<ExtraMlp> extra;  // none or one
  bool is_encoder;
  double divisor;
  ParallelLayer(const Scope& scope, const StackSpec& stack, int64_t i);
  /// Of in.token_mask: an extra MLP alone.
  Tensor operator()(const Tensor& x, const Tensor& relative_bias, const LayerInputs& in,
                    const Context& context, LayerRouting* routing) const;
};

/// LayerForm::fused: x + dropout(attention + MLP), undivided.
struct FusedParallelLayer {
  RmsNorm layer_norm;
  DotProductAttention attend;
  DropoutPlace mlp_dropout, dropout;
  std::vector<std::string> activations;
  std::array<int64_t, 3> widths;  // LayerConfig::fused_widths()
  Param q_wi_fused, kv_fused, o_wo_fused;
  /// Throws a usage error for heads that do not divide the MLP.
  FusedParallelLayer(const Scope& scope, const StackSpec& stack, int64_t i);
  Tensor operator()(const Tensor& x, const Tensor& relative_bias, const LayerInputs& in,
                    const Context& context, LayerRouting* routing) const;
};

/// An encoder or a decoder.
class Stack {
 public:
  /// Throws a usage error for fused layers elsewhere than in a decoder alone without experts.
  Stack(const Scope& scope, const StackSpec& spec, Remat remat);
  /// x: embedded tokens [batch, length, embed] -> the same, of the norm behind the last layer.
  Tensor operator()(const Tensor& x, const LayerInputs& in, const Context& context) const;

 private:
  using Layer = std::variant<SequentialLayer, ParallelLayer, FusedParallelLayer>;

  StackSpec spec_;
  DropoutPlace input_dropout_, output_dropout_;
  std::vector<Param> relative_biases_;  // one for all layers, or one a layer
  std::deque<Layer> layers_;
  RmsNorm norm_;
  Remat remat_;
};

class Transformer {
 public:
  Transformer(const Scope& scope, const T5Config& config);
  /// tokens, segments: int32 [batch, length] -> [batch, length, embed]
  Tensor encode(const Tensor& tokens, const Tensor& segments, const Context& context) const;
  /// Decoder output before the logits. input_tokens, segments: int32 [batch, length]; token_mask: see
  /// LayerInputs, where the configuration masks padding.
  Tensor decode(const Tensor& encoded, const Tensor& encoder_segments, const Tensor& input_tokens,
                const Tensor& segments, const Tensor& token_mask, const Context& context) const;
  Projection projection() const;

 private:
  ModelSpec spec_;
  Param encoder_embedding_, decoder_embedding_;  // may be one
  Stack encoder_;
  std::optional<Stack> decoder_;  // none: an encoder alone
  Param logits_dense_;
};

/// Decoder without encoder: T5X's DecoderWrapper.
class DecoderOnlyTransformer {
 public:
  DecoderOnlyTransformer(const Scope& scope, const TransformerConfig& config);
  /// input_tokens, segments, prefix: int32 [batch, length]; prefix may be absent (causal). token_mask:
  /// see LayerInputs, where the configuration masks padding.
  Tensor decode(const Tensor& input_tokens, const Tensor& segments, const Tensor& prefix,
                const Tensor& token_mask, const Context& context) const;
  Projection projection() const;

 private:
  ModelSpec spec_;
  Param embedding_;
  Stack decoder_;
  Param logits_dense_;
};

}  // namespace quintet
