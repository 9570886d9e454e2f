#pragma once
// The catalogue for model authors: every differentiable op as a function on tensors. Shapes in
// brackets; `...` stands for any leading axes. All compute in float32 unless said. Errors: usage
// errors naming the op and the axes that do not fit.

#include <array>
#include <memory>
#include <optional>

#include "kernels/moe/route.h"
#include "runtime/base/attrs.h"
#include "runtime/base/float8.h"
#include "runtime/base/threefry.h"
#include "runtime/tensor/tensor.h"

namespace quintet {
class RowExchange;
}

namespace quintet::ops {

/// x [..., k] times w [k, n] -> [..., n].
Tensor matmul(const Tensor& x, const Tensor& w);
/// x [..., k] times each of `w`, of [k, n] that may differ in n -> as many [..., n]. On a GPU alone, up to three of one
/// size that follow each other are one call.
Tensors matmul(const Tensor& x, const Tensors& w);
/// x [..., k] times w transposed, w [n, k] -> [..., n].
Tensor matmul_t(const Tensor& x, const Tensor& w);

/// What dense layers multiply, [..., k]: x, or where layers in 8-bit floating point alone read it its bytes of E4M3, which
/// their product gives back, and for the gradients of their weights the transpose.
struct DenseInput {
  Tensor x, transposed = {};
};
/// Scales of layers that share x: number `layer` of [layers, 20]; absent: current scaling.
struct Fp8Scales {
  Tensor scaling;
  int64_t layer = 0;
};
/// The same of layers that share x, in 8-bit floating point (kernels/fp8/fp8.h): x [..., k] times each of `w`, one to three
/// of [k, n] -> as many [..., n]. w8: all of them as cast_fp8_weights leaves them, or absent.
Tensors matmul_fp8(const DenseInput& x, const Tensors& w, const Tensor& w8, const Fp8Scales& scales,
                   Float8 gradient_format);

/// Rows of table [vocab, embed] for ids [...] int32 -> [..., embed].
Tensor embed(const Tensor& ids, const Tensor& table);

/// y = x / sqrt(mean(x^2) + eps) * scale over the last axis. arXiv:1910.07467.
Tensor rms_norm(const Tensor& x, const Tensor& scale, double eps = 1e-6);
/// The same as the bytes that `to`, the layers which read it, would make of it.
DenseInput rms_norm_fp8(const Tensor& x, const Tensor& scale, const Fp8Scales& to,
                        double eps = 1e-6);

/// A dropout mask: kept with probability 1 - rate, then divided by it; a function of key and global
/// position alone.
struct Dropout {
  double rate = 0;
  Key key{};
  bool broadcast_length = true;  // T5's form: one mask for all of the last axis but one
  int64_t heads = 0;  // the last axis is that of so many heads and their columns; 0: it is one
  std::optional<uint32_t> fold = {};  // of experts: each has its split of the key, folded with this
  Attrs attrs() const;                // those of kernels/dropout/dropout.h; none if rate is 0
};
Tensor dropout(const Tensor& x, const Dropout& dropout);

/// dropout(act0(x wi_0) act1(x wi_1)) wo, or without wi_1 of act0(x wi_0). x [..., embed], wi [embed,
/// mlp], wo [mlp, embed]. `activations`: T5X's names, one or two of relu, gelu, gelu_erf, silu, linear
/// (kernels/mlp/mlp.h); `dropout`: in T5's form.
Tensor mlp(const Tensor& x, const Tensor& wi_0, const Tensor& wi_1, const Tensor& wo,
           const std::vector<std::string>& activations, const Dropout& dropout = {});
/// act0(h0) act1(h1), or act0(h0) without h1; all [..., mlp].
Tensor gate(const Tensor& h0, const Tensor& h1, const std::vector<std::string>& activations);
/// The same as the bytes that `to`, the layer which reads it, would make of it.
DenseInput gate_fp8(const Tensor& h0, const Tensor& h1, const std::vector<std::string>& activations,
                    const Fp8Scales& to);
/// Activations of products, without dropout -> [..., mlp]. It has no gradient.
Tensor mlp_in(const Tensor& x, const Tensor& wi_0, const Tensor& wi_1,
              const std::vector<std::string>& activations);

/// x + y; with `dropout`, x + dropout(y).
Tensor add(const Tensor& x, const Tensor& y, const Dropout& dropout = {});
Tensor scale(const Tensor& x, double factor);

/// A residual sum x_new = x + dropout(y) and out = rms_norm(x_new, scale), all [..., embed], in one
/// pass over memory.
struct ResidualNorm {
  Tensor x_new, out;
};
ResidualNorm add_rms_norm(const Tensor& x, const Tensor& y, const Tensor& scale,
                          const Dropout& dropout = {}, double eps = 1e-6);
/// The same with `out` as bytes for `to`.
struct ResidualNormFp8 {
  Tensor x_new;
  DenseInput out;
};
ResidualNormFp8 add_rms_norm_fp8(const Tensor& x, const Tensor& y, const Tensor& scale,
                                 const Fp8Scales& to, const Dropout& dropout = {},
                                 double eps = 1e-6);

/// Who may attend to whom: segment ids (0: padding) must be equal and, if causal, the key must not
/// come after the query unless both are prefix. A query that sees nobody attends uniformly to all
/// keys.
struct AttentionMask {
  Tensor query_segments, key_segments;  // int32 [batch, length]
  Tensor prefix;                        // int32 [batch, length], self-attention only
  bool causal = false;
  Tensor ranges{};  // with_ranges()'s; absent: every call finds them
};
/// The mask with the ranges of keys that a GPU's kernels take from it (kernels/attention/ranges.h), computed once
/// for all calls of attention and of its gradient.
AttentionMask with_ranges(AttentionMask mask);
struct AttentionOptions {
  int64_t num_heads = 1;
  double scale = 1;           // T5 does not divide by sqrt(head size)
  int64_t max_distance = 0;   // of a relative bias: from there on all keys share a bucket
  bool bidirectional = true;  // of the relative position buckets
  double dropout_rate = 0;
  Key dropout_key{};
};
/// softmax(scale q k' + bias) v by heads. q [batch, length, heads*kv], k and v [batch, length,
/// heads*kv]; relative_bias [heads, relpos_buckets] or absent. Neither bias nor scores are
/// materialised.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& relative_bias,
                 const AttentionMask& mask, const AttentionOptions& options);

struct RotateOptions {
  double max_timescale = 1e4;
  Tensor positions{};  // int32 [...]; absent: they count from 0 along the axis before heads
  std::optional<int64_t> turned{};  // heads, the first; those behind stay as they are. None: all
};
/// Rotary position embeddings: queries and keys [..., heads*kv] turned by their positions.
Tensor rotate(const Tensor& x, int64_t num_heads, const RotateOptions& options);

/// x [..., heads*n] -> of each head its first columns, the next and the next, as many as `widths` say: [..., heads*width]
/// each; the last absent where its width is 0. And back.
Tensors split_heads(const Tensor& x, int64_t num_heads, const std::array<int64_t, 3>& widths);
Tensor join_heads(const Tensors& parts, int64_t num_heads);

struct CrossEntropyOptions {
  double label_smoothing = 0, z_loss = 0;
  double logit_scale = 1;
  bool tied = false;  // projection is [vocab, embed], an embedding table
  bool is_total =
      false;  // the gradient of `loss` is 1: a backward pass begins at it or at a sum with it
};
struct CrossEntropyResult {
  Tensor loss, z_loss, correct;  // scalars: weighted sums over tokens; loss includes z_loss
  Tensor log_prob;               // [...] of each target, without smoothing or weights
};
/// Output projection and softmax cross-entropy in one op; all logits are never held at once. x [...,
/// embed], projection [embed, vocab], targets int32 [...], weights [...]. T5X losses.py.
CrossEntropyResult cross_entropy(const Tensor& x, const Tensor& projection, const Tensor& targets,
                                 const Tensor& weights, const CrossEntropyOptions& options);

struct RouteOptions {
  Router router = Router::tokens_choose;
  int64_t num_selected_experts = 1;
  int64_t capacity = 0;  // choices that an expert serves of each group; 0: all
  int64_t group_size = 0, groups = 0;
  bool batch_priority = false, ignore_padding = false;
  int64_t padded_batch = 0, padded_length = 0;  // with the zeros that make whole groups
  double jitter = 0;
  Key jitter_key{};

  /// Choices of a token; packed rows for each of `batch` rows of `length` tokens, which hold all that can be served.
  int64_t choices(int64_t experts) const;
  int64_t packed_rows(int64_t batch, int64_t length, int64_t experts) const;
  /// Of the kernel (kernels/moe/route.h).
  Attrs attributes(int64_t batch, int64_t length, int64_t experts) const;
};
/// Who goes where, and what the losses and metrics of a mixture-of-experts layer need. b, l: batch,
/// length; k: choices a token; n b: packed rows; s: experts + 1 (kernels/moe/route.h).
struct Routed {
  Tensor gates;                                 // [b, l, k]
  Tensor auxiliary_loss, z_loss;                // scalars
  Tensor rows, choices;                         // int32 [b, l, k], [b, n]
  Tensor offsets;                               // int32 [b, s]: of rows where dispatch leaves them
  Tensor experts, positions;                    // int32 [b, l, k]
  Tensor counts, load;                          // [5], [experts]
  std::shared_ptr<const RowExchange> exchange;  // of rows with the ranks that hold their experts
};
/// x [batch, length, embed] by router weights w [embed, experts] and bias [experts], which may be absent.
Routed route(const Tensor& x, const Tensor& w, const Tensor& bias, const RouteOptions& options);
/// x [batch, length, embed] -> packed rows [batch, n, embed], sorted by expert, on the ranks that hold
/// their experts (row_exchange.h); and back, summed by gates.
Tensor dispatch(const Tensor& x, const Routed& routed);
Tensor combine(const Tensor& y, const Routed& routed);
/// The halves of an MLP for packed rows, each with its expert's matrices [experts, ...].
Tensor experts_in(const Tensor& x, const Tensor& offsets, const Tensor& wi_0, const Tensor& wi_1,
                  const std::vector<std::string>& activations);
Tensor grouped_matmul(const Tensor& x, const Tensor& offsets, const Tensor& w);
/// Packed rows times a mask that each expert has for its own.
Tensor experts_dropout(const Tensor& x, const Tensor& offsets, const Dropout& dropout);
/// x [..., embed] where mask [...], int32, is not 0; else 0.
Tensor mask_tokens(const Tensor& x, const Tensor& mask);

}  // namespace quintet::ops
