#pragma once
// The parts T5-family networks are made of, after t5x/examples/t5/layers.py. A part holds its
// parameters and is called like a function; it knows nothing of devices or ranks.

#include <array>
#include <map>
#include <optional>
#include <string>

#include "kernels/step_keys.h"
#include "runtime/ops/ops.h"
#include "runtime/tensor/parameters.h"

namespace quintet {

struct LayerRouting;  // models/moe.h

/// What the parts of a network make of a batch, by the names that Flax sows them by: "decoder/layers_0/activations".
using SownValues = std::map<std::string, Tensor>;

/// What changes from call to call: whether dropout is on, and its key for this step.
struct Context {
  bool train = false;
  Key dropout_key{};
  bool t5x_dropout = false;  // masks are T5X's: keys by Flax's paths, a microbatch's rows from 0
  std::vector<LayerRouting>* routings = nullptr;  // where sparse layers leave what losses need
  SownValues* sown = nullptr;

  void sow(const std::string& name, const Tensor& value) const {
    if (sown != nullptr) sown->emplace(name, value);
  }
  /// The same for a part that sows nothing unless it is `asked` to.
  Context sowing(bool asked) const {
    Context context = *this;
    if (!asked) context.sown = nullptr;
    return context;
  }
};

/// What T5X's scalable_t5 stores otherwise than t5: heads on an axis of their own, and with scan_layers an array of
/// all layers of a stack; flaxformer with scan_layers that alone. Here a layer has its own arrays and heads are joined;
/// checkpoints of T5X have its form.
struct ScalableLayers {
  bool scan_layers = true;
  int64_t param_scan_axis = 1;
  bool heads_apart = true;
  bool operator==(const ScalableLayers&) const = default;
};

/// Sizes and choices that layers share; the network configurations are made of it.
struct LayerConfig {
  int64_t emb_dim = 512;
  int64_t num_heads = 8;
  int64_t head_dim = 64;
  int64_t mlp_dim = 2048;
  std::vector<std::string> mlp_activations = {"relu"};
  double dropout_rate = 0.1;
  int64_t num_buckets = 32;                     // of the relative position bias; 0: there is none
  int64_t max_distance = 128;                   // from which on all keys share a bucket
  bool shared_relative_position_bias = true;    // by a stack's layers; else each has a table
  std::optional<ScalableLayers> scalable = {};  // T5X keeps the layers as its scalable_t5 does
  double init_scale = 1;  // initial variance of matrices, times this; flaxformer's SCALE
  bool scale_attn_logits =
      false;  // scores divided by sqrt(head_dim); T5X's contrib.gpu has the choice

  // of self-attention: queries and keys are turned by their positions (kernels/rotary/rotary.h) up to this timescale
  std::optional<double> rotary_max_timescale = {};
  bool multi_query = false;  // all heads have the keys and values of one (arXiv:1911.02150)
  // padding enters attention and MLP as zeros, but for parallel layers, and leaves a stack so; flaxformer's
  bool masks_padding = false;
  int64_t block_layers = 0;  // of a stack with experts: from one sparse layer to the next
  bool operator==(const LayerConfig&) const = default;

  /// Of a fused layer: what a head's columns of q_wi_fused are, one after another (the last 0 unless gated); and its
  /// rows of o_wo_fused.
  std::array<int64_t, 3> fused_widths() const {
    const int64_t mlp = mlp_dim / num_heads;
    return {head_dim, mlp, mlp_activations.size() == 2 ? mlp : 0};
  }
  int64_t joined_kv() const { return num_heads * head_dim; }
  bool is_scanned() const { return scalable && scalable->scan_layers; }
  /// Heads that have keys and values, and that of them which a head has: all that attention, caches and loaders ask.
  int64_t kv_heads() const { return multi_query ? 1 : num_heads; }
  int64_t kv_head_of(int64_t head) const { return head * kv_heads() / num_heads; }
  bool shares_kv() const { return multi_query; }
  int64_t kv_width() const { return kv_heads() * head_dim; }
};

/// `initializer` with the configuration's init_scale.
Initializer with_scale(const LayerConfig& config, const Initializer& initializer);

/// A dropout mask of its own for one place in the network: the step's key folded with the place's
/// name, or as Flax folds it with the path of T5X's module, `flax_name` in `scope`.
class DropoutPlace {
 public:
  DropoutPlace() = default;
  DropoutPlace(const Scope& scope, const std::string& name, const std::string& flax_name,
               double rate, bool broadcast_length = true);
  DropoutPlace(const Scope& scope, const std::string& name, const std::string& flax_name,
               const LayerConfig& config, bool broadcast_length = true);
  ops::Dropout operator()(const Context& context) const;
  /// The same of experts, of which Flax gives each a key of its own.
  ops::Dropout of_experts(const Context& context) const;
  Key key(const Context& context) const {
    return StepKeys::child(context.dropout_key, context.t5x_dropout ? flax_ : StepKeys::Place{id_});
  }

 private:
  uint32_t id_ = 0;
  StepKeys::Place flax_{0};
  double rate_ = 0;
  bool broadcast_length_ = true;
};

using ops::DenseInput;

/// Scales for who makes x, [..., k], of dense layers that alone read it and of which `first` (absent: others read it) is the
/// first: it leaves x as their bytes of E4M3 where they train in FP8 under delayed scaling, casts may be fused (fuses_casts) and x
/// has a multiple of 16 rows on this rank, as the transpose wants them. Absent: it does not.
std::optional<ops::Fp8Scales> fp8_scales(const Tensor& x, const Param& first,
                                         const Context& context);

/// x [..., in] times a kernel [in, out], and what its adapter adds -> [..., out]
Tensor dense(const Tensor& x, const Param& kernel, const Context& context);

/// The same for layers that share x, the first of which may say that they multiply in FP8 (models/fp8.h).
Tensors dense(const DenseInput& x, const std::vector<Param>& kernels, const Context& context);

/// A block's input x and what the block adds to it, dropout(y); both [batch, length, embed].
struct Residual {
  Tensor x, y;
  ops::Dropout dropout;
  Tensor sum() const { return ops::add(x, y, dropout); }
};

/// x with zeros for tokens where `token_mask`, int32 [batch, length], is 0; absent: x.
Tensor masked(const Tensor& x, const Tensor& token_mask);

struct RmsNorm {
  Param scale;
  RmsNorm(const Scope& scope, const LayerConfig& config);
  /// x: [..., embed] -> [..., embed]
  Tensor operator()(const Tensor& x) const;
  /// The sum of a residual, and its norm.
  ops::ResidualNorm operator()(Residual residual) const;
  /// The same, masked, for dense layers; `first` as in fp8_scales().
  DenseInput operator()(const Tensor& x, const Tensor& token_mask, const Param& first,
                        const Context& context) const;
  ops::ResidualNormFp8 operator()(Residual residual, const Tensor& token_mask, const Param& first,
                                  const Context& context) const;
};

struct MlpBlock {
  std::vector<std::string> activations;
  DropoutPlace dropout;
  Param wi_0, wi_1, wo;  // wi_1 absent unless gated
  MlpBlock(const Scope& scope, const LayerConfig& config);
  /// x: [batch, length, embed] -> [batch, length, embed]
  Tensor operator()(const DenseInput& x, const Context& context) const;
};

/// What queries find; `relative_bias` is a [heads, buckets] table or absent.
struct DotProductAttention {
  int64_t num_heads, head_dim, max_distance;
  std::optional<double> rotary_max_timescale;
  double score_scale;
  DropoutPlace dropout;
  /// kv_axis: what the axis of one head's keys and values is called, where all heads share them.
  DotProductAttention(const Scope& scope, const LayerConfig& config,
                      const char* kv_axis = axis::kKv);
  /// qkv: queries [batch, length, joined_kv], keys and values of as many heads, or of one. of_self: where they are
  /// turned by their positions, if they are.
  Tensor operator()(Tensors qkv, const ops::AttentionMask& mask, const Tensor& relative_bias,
                    bool bidirectional, bool of_self, const Context& context) const;

 private:
  /// A head's keys or values [batch, length, kv], for each of num_heads: [batch, length, joined_kv].
  Tensor for_all_heads(const Tensor& one) const;
  std::vector<Tensor>
      repeat_;  // identities [kv, joined_kv] of each dtype; none: every head has its own
};

/// Multi-head attention.
struct Attention {
  DotProductAttention attend;
  Param query, key, value, out;
  Attention(const Scope& scope, const LayerConfig& config);
  /// x: [batch, length, embed] asks, memory: [batch, memory length, embed] answers.
  Tensor operator()(const DenseInput& x, const Tensor& memory, const ops::AttentionMask& mask,
                    const Tensor& relative_bias, bool bidirectional, const Context& context) const;
};

}  // namespace quintet
