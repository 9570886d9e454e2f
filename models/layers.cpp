#include "models/layers.h"

#include <algorithm>
#include <cmath>
#include <regex>

#include "kernels/dequantize/dequantize.h"
#include "kernels/fp8/fp8.h"
#include "kernels/gpu/gpu_kernels.h"
#include "runtime/base/hash.h"
#include "runtime/execution/gather_cache.h"
#include "runtime/execution/tape.h"

namespace quintet {

Initializer with_scale(const LayerConfig& config, const Initializer& initializer) {
  if (config.init_scale == 1) return initializer;
  return scaled(initializer, static_cast<float>(std::sqrt(config.init_scale)));
}

DropoutPlace::DropoutPlace(const Scope& scope, const std::string& name,
                           const std::string& flax_name, double rate, bool broadcast_length)
    : id_(fnv1a<uint32_t>((scope / name).path())),
      flax_{hash_of_path(scope.path() + flax_name)},
      rate_(rate),
      broadcast_length_(broadcast_length) {
  QT_CHECK(rate >= 0 && rate < 1, "dropout_rate: expected 0 <= rate < 1, found {}", rate);
}

/// A scanned stack's layers are one module, called as the stack is, which with experts has a block of them.
DropoutPlace::DropoutPlace(const Scope& scope, const std::string& name,
                           const std::string& flax_name, const LayerConfig& config,
                           bool broadcast_length)
    : DropoutPlace(scope, name, flax_name, config.dropout_rate, broadcast_length) {
  static const std::regex in_layer("([^/]+)/layers_([0-9]+)(/.*)?");
  std::smatch parts;
  const std::string path = scope.path();
  if (!config.is_scanned() || !std::regex_match(path, parts, in_layer)) return;
  std::string module = parts[1].str() + "/" + parts[1].str();
  auto layer = static_cast<uint32_t>(std::stoul(parts[2]));
  if (const auto block = static_cast<uint32_t>(config.block_layers); block > 0) {
    module += fmt::format("/subblock_{}", layer % block);
    layer /= block;
  }
  // Flax traces the module once to find out what it broadcasts: the draw that counts is the second.
  flax_ = {hash_of_path(module + parts[3].str() + flax_name, 2), layer};
}

ops::Dropout DropoutPlace::operator()(const Context& context) const {
  if (!context.train || rate_ == 0) return {};
  return {rate_, key(context), broadcast_length_};
}

ops::Dropout DropoutPlace::of_experts(const Context& context) const {
  if (!context.train || rate_ == 0 || !context.t5x_dropout) return (*this)(context);
  return {.rate = rate_,
          .key = StepKeys::child(context.dropout_key, {.id = {}, .layer = flax_.layer}),
          .fold = flax_.id};
}

namespace {

struct FrozenKernel {
  Tensor values, scales;  // [in, out] in fewer bits, [out] or absent
};

/// A frozen kernel in the dtype of who reads it, for one product.
Tensor widened(const FrozenKernel& kernel, DType dtype) {
  const Tensor& w = kernel.values;
  const Tensor wide({w.spec().axes, dtype}, w.layout(), w.global_slice());
  const Device& device = w.device();
  const View local = w.local();
  const DequantizeRows rows{.dtype = local.dtype,
                            .values = local.pointer,
                            .scales = kernel.scales ? kernel.scales.local().data<float>() : nullptr,
                            .rows_together = local.size(0),
                            .table_rows = local.size(0),
                            .rows = local.size(0),
                            .columns = local.size(1),
                            .out = wide.local().pointer,
                            .out_dtype = dtype};
  if (!device.is_cpu())
    device.kernels().dequantize_rows(rows, device.stream());
  else if (device.memory_is_real())
    dequantize_rows_cpu(rows);
  return wide;
}

/// x w of a frozen w, which is widened for the product and again for x's gradient, so that no wide copy is kept:
/// by the cache of gathered parameters, which remembers what it gathers, neither.
Tensor frozen_matmul(const Tensor& x, const FrozenKernel& w) {
  Tape* const tape = ExecutionContext::current().tape;
  Tensor y;
  {
    const Tape::Recording paused(nullptr);
    const GatherCache::Use none(nullptr);
    y = ops::matmul(x, widened(w, x.spec().dtype));
  }
  if (tape == nullptr || !x.needs_grad()) return y;
  y.set_needs_grad(true);
  tape->record(
      {.inputs = {x}, .outputs = {y}, .attrs = {}, .gradient = [w](const Node&, const Tensors& dy) {
         const GatherCache::Use none(nullptr);
         return Tensors{ops::matmul_t(dy[0], widened(w, dy[0].spec().dtype))};
       }});
  return y;
}

/// Of one that is not frozen, another dtype than x's is a mistake, which the product reports.
bool is_narrow(const Tensor& x, const Param& w) {
  return w.info().frozen && w.tensor().spec().dtype != x.spec().dtype;
}

}  // namespace

Tensor dense(const Tensor& x, const Param& kernel, const Context& context) {
  const Tensor y = is_narrow(x, kernel) ? frozen_matmul(x, {kernel.tensor(), kernel.info().scales})
                                        : ops::matmul(x, kernel);
  const std::optional<LowRank>& adapter = kernel.info().low_rank;
  if (!adapter) return y;
  ops::Dropout dropout;
  if (context.train && adapter->dropout_rate > 0)
    dropout = {adapter->dropout_rate,
               StepKeys::child(context.dropout_key, fnv1a<uint32_t>(adapter->a->name)), false};
  const Tensor low = ops::matmul(ops::dropout(x, dropout), adapter->a->used());  // [..., rank]
  return ops::add(y, ops::scale(ops::matmul(low, adapter->b->used()), adapter->scale));
}

std::optional<ops::Fp8Scales> fp8_scales(const Tensor& x, const Param& first,
                                         const Context& context) {
  if (first.absent() || !context.train || !fuses_casts(first.info())) return {};
  const Fp8Layers& fp8 = *first.info().fp8;
  if (fp8.scaling.absent() || x.local().rows() % 16 != 0) return {};
  return ops::Fp8Scales{fp8.scaling, fp8.layer};
}

Tensors dense(const DenseInput& x, const std::vector<Param>& kernels, const Context& context) {
  if (const auto& fp8 = kernels[0].info().fp8; fp8 && context.train) {
    const Tensors w(kernels.begin(), kernels.end());
    return ops::matmul_fp8(x, w, fp8->weights, {fp8->scaling, fp8->layer}, fp8->gradient_format);
  }
  const auto is_plain = [&x](const Param& w) { return !w.info().low_rank && !is_narrow(x.x, w); };
  if (std::ranges::all_of(kernels, is_plain))
    return ops::matmul(x.x, Tensors(kernels.begin(), kernels.end()));
  Tensors y;
  for (const Param& kernel : kernels) y.push_back(dense(x.x, kernel, context));
  return y;
}

RmsNorm::RmsNorm(const Scope& scope, const LayerConfig& config)
    : scale(scope.param("scale", {{axis::kEmbed, config.emb_dim}}, t5_init::norm_scale())) {}

Tensor RmsNorm::operator()(const Tensor& x) const { return ops::rms_norm(x, scale); }

ops::ResidualNorm RmsNorm::operator()(Residual residual) const {
  return ops::add_rms_norm(residual.x, residual.y, scale, residual.dropout);
}

Tensor masked(const Tensor& x, const Tensor& token_mask) {
  return token_mask.absent() ? x : ops::mask_tokens(x, token_mask);
}

namespace {

/// fp8_scales() of a norm.
std::optional<ops::Fp8Scales> norm_scales(const Tensor& x, const Tensor& token_mask,
                                          const Param& first, const Context& context) {
  if (!token_mask.absent() || x.size(-1) > kMostFp8NormDepth) return {};
  return fp8_scales(x, first, context);
}

}  // namespace

DenseInput RmsNorm::operator()(const Tensor& x, const Tensor& token_mask, const Param& first,
                               const Context& context) const {
  const auto scales = norm_scales(x, token_mask, first, context);
  if (scales) return ops::rms_norm_fp8(x, scale, *scales);
  return {masked((*this)(x), token_mask)};
}

ops::ResidualNormFp8 RmsNorm::operator()(Residual residual, const Tensor& token_mask,
                                         const Param& first, const Context& context) const {
  const auto scales = norm_scales(residual.x, token_mask, first, context);
  if (scales)
    return ops::add_rms_norm_fp8(residual.x, residual.y, scale, *scales, residual.dropout);
  const ops::ResidualNorm sum = (*this)(std::move(residual));
  return {sum.x_new, {masked(sum.out, token_mask)}};
}

MlpBlock::MlpBlock(const Scope& scope, const LayerConfig& config)
    : activations(config.mlp_activations), dropout(scope, "dropout", "Dropout_0", config) {
  const Axis embed{axis::kEmbed, config.emb_dim}, mlp{axis::kMlp, config.mlp_dim};
  const bool gated = activations.size() == 2;
  const Initializer initial = with_scale(config, t5_init::mlp_kernel());
  const bool in_stack = config.is_scanned();
  wi_0 = (scope / (gated ? "wi_0" : "wi")).param("kernel", {embed, mlp}, initial, in_stack);
  if (gated) wi_1 = (scope / "wi_1").param("kernel", {embed, mlp}, initial, in_stack);
  wo = (scope / "wo").param("kernel", {mlp, embed}, initial, in_stack);
}

Tensor MlpBlock::operator()(const DenseInput& x, const Context& context) const {
  const auto apart = [&](const Param& w) {
    return !w.absent() && (w.info().low_rank.has_value() || is_narrow(x.x, w) ||
                           (w.info().fp8.has_value() && context.train));
  };
  if (apart(wi_0) || apart(wi_1) || apart(wo)) {
    std::vector<Param> wi{wi_0};
    if (!wi_1.absent()) wi.push_back(wi_1);
    Tensors h = dense(x, wi, context);
    h.resize(2);
    const ops::Dropout drops = dropout(context);
    const auto scales = drops.rate == 0 ? fp8_scales(h[0], wo, context) : std::nullopt;
    const DenseInput y = scales
                             ? ops::gate_fp8(h[0], h[1], activations, *scales)
                             : DenseInput{ops::dropout(ops::gate(h[0], h[1], activations), drops)};
    return dense(y, std::vector{wo}, context)[0];
  }
  return ops::mlp(x.x, wi_0, wi_1.absent() ? Tensor() : wi_1.tensor(), wo, activations,
                  dropout(context));  // [batch, length, embed]
}

namespace {

/// Identities of head_dim side by side: what the heads of keys have, times this, is what all have.
Tensor repeated_identity(const LayerConfig& config, const char* kv_axis, DType dtype) {
  HostArray repeat(dtype, {config.kv_width(), config.joined_kv()});
  for (int64_t column = 0; column < config.joined_kv(); ++column) {
    const int64_t row =
        config.kv_head_of(column / config.head_dim) * config.head_dim + column % config.head_dim;
    const auto at = static_cast<size_t>(row * config.joined_kv() + column);
    if (dtype == DType::f32)
      repeat.as<float>()[at] = 1;
    else
      repeat.as<bfloat16>()[at] = bfloat16(1.0F);
  }
  return Tensor::from_host(repeat, {kv_axis, axis::kJoinedKv});
}

}  // namespace

DotProductAttention::DotProductAttention(const Scope& scope, const LayerConfig& config,
                                         const char* kv_axis)
    : num_heads(config.num_heads),
      head_dim(config.head_dim),
      max_distance(config.max_distance),
      rotary_max_timescale(config.rotary_max_timescale),
      score_scale(config.scale_attn_logits ? 1 / std::sqrt(static_cast<double>(config.head_dim))
                                           : 1),
      dropout(scope, "dropout", "", config) {  // Flax draws in the attention itself
  if (config.shares_kv())
    repeat_ = {repeated_identity(config, kv_axis, DType::f32),
               repeated_identity(config, kv_axis, DType::bf16)};
}

Tensor DotProductAttention::for_all_heads(const Tensor& one) const {
  if (repeat_.empty()) return one;
  return ops::matmul(one, repeat_[one.spec().dtype == DType::f32 ? 0 : 1]);
}

Tensor DotProductAttention::operator()(Tensors qkv, const ops::AttentionMask& mask,
                                       const Tensor& relative_bias, bool bidirectional,
                                       bool of_self, const Context& context) const {
  const ops::Dropout weights_dropout = dropout(context);
  for (size_t i = 0; of_self && rotary_max_timescale && i < 2; ++i)
    qkv[i] =
        ops::rotate(qkv[i], qkv[i].size(-1) / head_dim, {.max_timescale = *rotary_max_timescale});
  return ops::attention(qkv[0], for_all_heads(qkv[1]), for_all_heads(qkv[2]), relative_bias, mask,
                        {.num_heads = num_heads,
                         .scale = score_scale,
                         .max_distance = max_distance,
                         .bidirectional = bidirectional,
                         .dropout_rate = weights_dropout.rate,
                         .dropout_key = weights_dropout.key});  // [batch, length, joined_kv]
}

Attention::Attention(const Scope& scope, const LayerConfig& config) : attend(scope, config) {
  const Axis embed{axis::kEmbed, config.emb_dim};
  const Axis joined{axis::kJoinedKv, config.joined_kv()};
  const Initializer initial = with_scale(config, t5_init::attention_kernel());
  const bool heads_apart =
      config.scalable && (config.scalable->heads_apart || config.scalable->scan_layers);
  query = (scope / "query")
              .param("kernel", {embed, joined},
                     with_scale(config, t5_init::query_kernel(config.head_dim)), heads_apart);
  const Axis shared = config.shares_kv() ? Axis{axis::kKv, config.kv_width()} : joined;
  key = (scope / "key").param("kernel", {embed, shared}, initial, heads_apart);
  value = (scope / "value").param("kernel", {embed, shared}, initial, heads_apart);
  out = (scope / "out").param("kernel", {joined, embed}, initial, heads_apart);
}

Tensor Attention::operator()(const DenseInput& x, const Tensor& memory,
                             const ops::AttentionMask& mask, const Tensor& relative_bias,
                             bool bidirectional, const Context& context) const {
  const bool of_self = x.x.id() == memory.id();
  Tensors qkv;
  if (of_self) {
    qkv = dense(x, {query, key, value}, context);
  } else {
    qkv = dense({memory}, {key, value}, context);
    qkv.insert(qkv.begin(), dense(x, std::vector{query}, context)[0]);
  }
  const Tensor y = attend(std::move(qkv), mask, relative_bias, bidirectional, of_self, context);
  return dense({y}, std::vector{out}, context)[0];  // [batch, length, embed]
}

}  // namespace quintet
