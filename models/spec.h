#pragma once
// What a model is made of. Training builds its layers by it; generation, serving and quantization load
// its parameters and run its layers by it, on the CPU and on a GPU. All of T5's norms are RMS norms
// before a block, its residual sums after it.
//
//   const ModelSpec& spec = model.spec();
//   for (int64_t i = 0; i < spec.decoder.num_layers; ++i) load(spec.decoder.layer_scope(i));

#include <optional>

#include "models/moe.h"

namespace quintet {

struct T5Config;
struct TransformerConfig;

/// gin: sow_intermediates of flaxformer's stacks and layers: whether score_batch.return_intermediates has what they make.
struct Sows {
  bool stack = false, dense_layers = false, sparse_layers = false;
  bool any() const { return stack || dense_layers || sparse_layers; }
};

/// How attention and MLP of a layer are put together.
enum class LayerForm {
  sequential,  // one after another, each of a norm of its own: T5's
  parallel,    // of one norm, and added up
  fused  // parallel, of a decoder alone with multi-query attention: kernels as flaxformer fuses them
};

struct LayerKind {
  LayerForm form = LayerForm::sequential;
  bool extra_mlp = false;  // a dense MLP behind the layer's own (ST-MoE, arXiv:2202.08906)

  bool is_parallel() const { return form != LayerForm::sequential; }
  bool operator==(const LayerKind&) const = default;
  /// What distinguishes it from T5's: "parallel and followed by a dense MLP".
  std::string text() const;
};

/// What a stack of flaxformer's has of its own, whatever its layers' sizes; by default T5's stack.
struct StackConfig {
  LayerKind dense_layers{}, sparse_layers{};
  SparseStack sparse{};  // which layers are mixtures of experts, and these
  Sows sows{};
};

/// Layers that follow one another, and the norm behind them.
struct StackSpec : StackConfig {
  LayerConfig layer{};  // sizes, attention, gate, relative position bias
  int64_t num_layers = 0;
  bool is_encoder = false;       // attends both ways
  bool cross_attention = false;  // to an encoder's output

  /// Of its parameters: "encoder" or "decoder".
  std::string scope() const { return is_encoder ? "encoder" : "decoder"; }
  std::string layer_scope(int64_t i) const { return fmt::format("{}/layers_{}", scope(), i); }
  bool has_experts() const { return sparse.num_sparse_layers > 0; }
  /// Layers that T5X scans as one where it scans; 0: without experts.
  int64_t block_layers() const { return has_experts() ? num_layers / sparse.num_sparse_layers : 0; }
  /// Null: layer i is dense.
  const SparseStack* sparse_at(int64_t i) const {
    return sparse.is_sparse(i, num_layers) ? &sparse : nullptr;
  }
  /// Of layer i.
  const LayerKind& kind(int64_t i) const {
    return sparse_at(i) != nullptr ? sparse_layers : dense_layers;
  }
  /// Divisor of the sum of attention and MLP that a parallel layer adds, an extra MLP not included; 1 for other
  /// layers and fused ones.
  double sum_divisor(int64_t i) const;
  bool layer_sows(int64_t i) const {
    return sparse_at(i) != nullptr ? sows.sparse_layers : sows.dense_layers;
  }
};

struct ModelSpec {
  int64_t vocab_size = 0;
  std::string dtype = "float32";                // of activations on a GPU
  bool logits_via_embedding = false;            // tied; else a kernel of their own
  bool separate_embeddings = false;             // a table for each stack; else one for both
  bool inputs_bidirectional_attention = false;  // of a decoder without encoder: its prefix
  bool own_network =
      false;  // other layers than those below: it trains, and nothing else can run it
  std::optional<StackSpec> encoder{};
  StackSpec decoder{};

  bool decoder_only() const { return !encoder.has_value(); }
  /// Its decoder has no layers: it encodes, and answers nothing.
  bool encoder_only() const { return encoder.has_value() && decoder.num_layers == 0; }
  /// The same without its decoder.
  ModelSpec encoder_alone() const {
    ModelSpec spec = *this;
    spec.decoder.num_layers = 0;
    return spec;
  }
  /// Of either stack.
  bool has_experts() const {
    return decoder.has_experts() || (encoder.has_value() && encoder->has_experts());
  }
  bool sows() const { return decoder.sows.any() || (encoder.has_value() && encoder->sows.any()); }
  int64_t emb_dim() const { return decoder.layer.emb_dim; }
  /// What logits of tied embeddings are multiplied by.
  double logit_scale() const;
  /// The table that a stack reads.
  std::string embedding_name(const StackSpec& stack) const {
    return (separate_embeddings || decoder_only() ? stack.scope() + "/" : "") +
           "token_embedder/embedding";
  }
};

/// For what runs layers by their description: throws a usage error if they are not those described.
void refuse_own_network(const ModelSpec& spec);

/// Throws a usage error for networks whose dropout masks this program cannot draw as T5X does.
void check_t5x_dropout(const ModelSpec& spec);

ModelSpec spec_of(const T5Config& config);
ModelSpec spec_of(const TransformerConfig& config, bool inputs_bidirectional_attention = false);

}  // namespace quintet
