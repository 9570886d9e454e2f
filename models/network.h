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
  std::string remat_policy = "none";           // as T5X's; see Remat
  SparseStack sparse_encoder, sparse_decoder;  // layers that are mixtures of experts
  bool separate_embeddings = false;            // flaxformer: encoder and decoder have a table each
  bool parallel_encoder = false;               // LayerConfig::parallel of its dense layers
  Sows encoder_sows, decoder_sows;
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
  SparseStack sparse;
  Sows sows;
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

/// A dense MLP that follows a sparse layer's own (ST-MoE, arXiv:2202.08906).
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
  Tensor operator()(const Tensor& x, const Context& context, LayerRouting* routing) const;
};

/// The end of a layer: x + MLP(norm(x)), the MLP dense or a mixture of experts, and perhaps another,
/// dense one; x is the residual's sum.
class FeedForward {
 public:
  /// `sparse`: of the layer's stack; null: dense. `flax_dropout`: see DropoutPlace.
  FeedForward(const Scope& scope, const LayerConfig& config, const SparseStack* sparse,
              const std::string& flax_dropout);
  /// -> [batch, length, embed]; token_mask as in Encoder. A sparse layer sets *routing.
  Tensor operator()(Residual residual, const Tensor& token_mask, const Context& context,
                    LayerRouting* routing) const;

 private:
  RmsNorm norm_;
  AnyMlp mlp_;
  DropoutPlace dropout_;
  std::deque<ExtraMlp> extra_;  // none or one
};

struct EncoderLayer {
  RmsNorm pre_attention_layer_norm;
  Attention attention;
  DropoutPlace attention_dropout;
  FeedForward feed_forward;
  EncoderLayer(const Scope& scope, const LayerConfig& config, const SparseStack* sparse);
  /// x: [batch, length, embed] -> the same
  Tensor operator()(const Tensor& x, const ops::AttentionMask& mask, const Tensor& token_mask,
                    const Tensor& relative_bias, const Context& context,
                    LayerRouting* routing) const;
};

/// Attention and MLP of one norm (StackSpec::is_parallel): x + dropout(sum of them / parallel_divisor()).
struct ParallelLayer {
  RmsNorm layer_norm;
  Attention self_attention;
  std::deque<Attention> encoder_decoder_attention;  // none or one
  AnyMlp mlp;
  DropoutPlace dropout;
  std::deque<ExtraMlp> extra;  // none or one
  bool is_encoder;
  double divisor;
  ParallelLayer(const Scope& scope, const StackSpec& stack, int64_t index);
  /// As DecoderLayer's; token_mask: of an extra MLP alone.
  Tensor operator()(const Tensor& x, const Tensor& encoded, const ops::AttentionMask& self_mask,
                    const ops::AttentionMask& cross_mask, const Tensor& token_mask,
                    const Tensor& relative_bias, const Context& context,
                    LayerRouting* routing) const;
};

class Encoder {
 public:
  Encoder(const Scope& scope, const StackSpec& spec, Remat remat);
  /// x: embedded tokens [batch, length, embed]; segments: int32 [batch, length], 0 is padding.
  Tensor operator()(const Tensor& x, const Tensor& segments, const Context& context) const;

 private:
  StackSpec spec_;
  DropoutPlace input_dropout_, output_dropout_;
  std::vector<Param> relative_biases_;  // one for all layers, or one a layer
  std::deque<std::variant<EncoderLayer, ParallelLayer>> layers_;
  RmsNorm encoder_norm_;
  Remat remat_;
};

struct DecoderLayer {
  RmsNorm pre_self_attention_layer_norm;
  Attention self_attention;
  DropoutPlace self_attention_dropout;
  std::deque<RmsNorm> pre_cross_attention_layer_norm;  // none or one
  std::deque<Attention> encoder_decoder_attention;     // none or one
  DropoutPlace cross_attention_dropout;
  FeedForward feed_forward;
  DecoderLayer(const Scope& scope, const LayerConfig& config, bool cross_attention,
               const SparseStack* sparse);
  /// x: [batch, length, embed] -> the same; encoded: [batch, encoder length, embed] or absent.
  Tensor operator()(const Tensor& x, const Tensor& encoded, const ops::AttentionMask& self_mask,
                    const ops::AttentionMask& cross_mask, const Tensor& token_mask,
                    const Tensor& relative_bias, const Context& context,
                    LayerRouting* routing) const;
};

/// A decoder's without an encoder, with fused kernels (LayerConfig::fused): x + dropout(attention + MLP).
struct FusedParallelLayer {
  RmsNorm layer_norm;
  DotProductAttention attend;
  DropoutPlace mlp_dropout, dropout;
  std::vector<std::string> activations;
  std::array<int64_t, 3> widths;  // LayerConfig::fused_widths()
  Param q_wi_fused, kv_fused, o_wo_fused;
  FusedParallelLayer(const Scope& scope, const LayerConfig& config);
  /// x: [batch, length, embed] -> the same
  Tensor operator()(const Tensor& x, const ops::AttentionMask& mask, const Tensor& relative_bias,
                    const Context& context) const;
};

class Decoder {
 public:
  Decoder(const Scope& scope, const StackSpec& spec, Remat remat);
  /// x: embedded tokens [batch, length, embed]; masks as in T5X's make_decoder_mask; token_mask int32
  /// [batch, length], 0 for tokens that enter attention and MLP as zeros, or absent.
  Tensor operator()(const Tensor& x, const Tensor& encoded, const ops::AttentionMask& self_mask,
                    const ops::AttentionMask& cross_mask, const Tensor& token_mask,
                    const Context& context) const;

 private:
  StackSpec spec_;
  DropoutPlace input_dropout_, output_dropout_;
  std::vector<Param> relative_biases_;  // one for all layers, or one a layer
  std::deque<std::variant<DecoderLayer, ParallelLayer, FusedParallelLayer>> layers_;
  RmsNorm decoder_norm_;
  Remat remat_;
};

class Transformer {
 public:
  Transformer(const Scope& scope, const T5Config& config);
  /// tokens, segments: int32 [batch, length] -> [batch, length, embed]
  Tensor encode(const Tensor& tokens, const Tensor& segments, const Context& context) const;
  /// Decoder output before the logits. input_tokens, segments: int32 [batch, length]; token_mask: see
  /// Decoder, where the configuration masks padding.
  Tensor decode(const Tensor& encoded, const Tensor& encoder_segments, const Tensor& input_tokens,
                const Tensor& segments, const Tensor& token_mask, const Context& context) const;
  Projection projection() const;

 private:
  ModelSpec spec_;
  Param encoder_embedding_, decoder_embedding_;  // may be one
  Encoder encoder_;
  std::optional<Decoder> decoder_;  // none: an encoder alone
  Param logits_dense_;
};

/// Decoder without encoder: T5X's DecoderWrapper.
class DecoderOnlyTransformer {
 public:
  DecoderOnlyTransformer(const Scope& scope, const TransformerConfig& config);
  /// input_tokens, segments, prefix: int32 [batch, length]; prefix may be absent (causal). token_mask:
  /// see Decoder, where the configuration masks padding.
  Tensor decode(const Tensor& input_tokens, const Tensor& segments, const Tensor& prefix,
                const Tensor& token_mask, const Context& context) const;
  Projection projection() const;

 private:
  ModelSpec spec_;
  Param embedding_;
  Decoder decoder_;
  Param logits_dense_;
};

}  // namespace quintet
