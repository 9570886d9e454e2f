#include "models/decoding/gpu/gpu_sequences.h"

#include "models/decoding/gpu/gpu_experts.h"
#include "models/decoding/gpu/gpu_layers.h"
#include "models/decoding/network/layer.h"
#include "models/features.h"

namespace quintet::decoding {
namespace {

const std::vector<std::string> kTokenAxes{axis::kBatch, axis::kLength};

/// Columns of projections side by side, in rows of their own.
Tensor columns(const Tensor& joined, int64_t first, int64_t width) {
  Spec spec = joined.spec();
  spec.axes.back().size = width;
  const Tensor some(spec);
  const int64_t bytes = width * size_of(spec.dtype), all = joined.size(-1) * size_of(spec.dtype);
  Device::current().copy({.to = some.raw(),
                          .from = joined.raw() + first * size_of(spec.dtype),
                          .bytes = bytes,
                          .counts = {1, some.bytes() / bytes},
                          .to_strides = {0, bytes},
                          .from_strides = {0, all}});
  return some;
}

/// Keys or values that heads share, for each head its own: the op of attention knows no others.
Tensor for_all_heads(const Tensor& shared, const LayerConfig& sizes) {
  if (!sizes.shares_kv()) return shared;
  Spec spec = shared.spec();
  spec.axes.back() = {axis::kJoinedKv, sizes.joined_kv()};
  const Tensor all(spec);
  const int64_t bytes = sizes.head_dim * size_of(spec.dtype), kept = sizes.kv_heads();
  const int64_t group = sizes.num_heads / kept;
  for (int64_t i = 0; i < kept; ++i)
    Device::current().copy({.to = all.raw() + i * group * bytes,
                            .from = shared.raw() + i * bytes,
                            .bytes = bytes,
                            .counts = {group, shared.bytes() / (kept * bytes)},
                            .to_strides = {bytes, sizes.num_heads * bytes},
                            .from_strides = {0, kept * bytes}});
  return all;
}

/// A layer over whole sequences (layer.h).
struct SequenceBackend {
  const GpuWeights& weights;
  const StackSpec& stack;
  ops::AttentionMask mask;
  Tensor x;                         // [batch, length, embed]
  Tensor token_mask{};              // int32 [batch, length]: 0 for padding read as zeros; or absent
  PrefixSink sink{};                // or empty
  Tensor encoded{};                 // what cross-attention reads
  ops::AttentionMask cross_mask{};  // of it
  // Where layers are those of evaluation, whose experts have capacities: what these leave. Else null.
  std::vector<LayerRouting>* routings = nullptr;
  Tensor residual{};  // [batch, length, embed] that the next norm adds to x; absent at first
  // [batch, length, joined_kv], of keys and values kv_width; query: attention's result, too
  Tensor query{}, key{}, value{};
  Tensor parallel{};  // of a parallel layer: the norm that all of its parts read

  Tensor normed(const Tensor& norm) {
    if (!parallel.absent()) return parallel;
    ops::ResidualNorm sum{x, {}};
    if (residual.absent())
      sum.out = ops::rms_norm(x, norm);
    else
      sum = ops::add_rms_norm(x, residual, norm);
    residual = {};
    x = sum.x_new;
    return token_mask.absent() ? sum.out : ops::mask_tokens(sum.out, token_mask);
  }
  /// Parallel layers read padding as it is.
  void begin_parallel(const Tensor& norm) {
    const Tensor masks = std::exchange(token_mask, {});
    parallel = normed(norm);
    token_mask = masks;
  }
  void end_parallel() { parallel = {}; }
  void project(size_t i, const GpuAttention& attention) {
    const Tensor h = normed(attention.norm);
    const auto& [parts, joined] = attention.in;
    if (parts.empty()) {  // of a decoder whose steps alone were to be computed
      query = ops::matmul(h, joined);
      if (!attention.key_value.parts.empty()) return;  // cross-attention's
      const int64_t width = stack.layer.joined_kv(), kv = stack.layer.kv_width();
      key = placed(stack.layer, columns(query, width, kv));
      value = columns(query, width + kv, kv);
      query = placed(stack.layer, columns(query, 0, width));
      return;
    }
    key = placed(stack.layer, ops::matmul(h, parts[1]));
    value = ops::matmul(h, parts[2]);
    if (sink) sink(i, key, value);
    query = placed(stack.layer, ops::matmul(h, parts[0]));
  }
  void attend_self(size_t, const GpuAttention& attention) {
    query = ops::attention(query, for_all_heads(key, stack.layer),
                           for_all_heads(value, stack.layer), attention.relative_bias.table, mask,
                           {.num_heads = stack.layer.num_heads,
                            .max_distance = stack.layer.max_distance,
                            .bidirectional = stack.is_encoder});
  }
  void attend_cross(size_t i) {
    const std::vector<GpuMatrix>& parts = weights.decoder.layers[i].cross->key_value.parts;
    const auto of_encoded = [&](const GpuMatrix& part) {
      return for_all_heads(ops::matmul(encoded, part), stack.layer);
    };
    query = ops::attention(query, of_encoded(parts[0]), of_encoded(parts[1]), {}, cross_mask,
                           {.num_heads = stack.layer.num_heads});
  }
  /// Onto what is there for the next norm.
  void add(const Tensor& part) { residual = residual.absent() ? part : ops::add(residual, part); }
  /// The same of a part of which each rank has a summand.
  void add_part(const Tensor& part) {
    weights.sum(part);
    add(part);
  }
  void add_product(const GpuMatrix& matrix) { add_part(ops::matmul(query, matrix)); }
  void add_mlp(const Tensor& norm, const GpuForm::Mlp& mlp) {
    add_part(ops::mlp(normed(norm), mlp.wi_0, mlp.wi_1, mlp.wo, mlp.activations));
  }
  void add_mlp(const Tensor& norm, const GpuForm::Experts& experts) {
    Tensor h = normed(norm);
    // What experts make of padding nobody reads; served for itself it takes nobody's place.
    if (routings == nullptr && !token_mask.absent()) h = ops::mask_tokens(h, token_mask);
    add(through_experts(weights, experts, h,
                        routings == nullptr ? inference_routing(experts.moe, h.size(0), h.size(1))
                                            : routing_of(experts.moe, h.size(0), h.size(1), false),
                        routings));
  }
  /// The stack's output.
  Tensor run(const StackWeights<GpuForm>& layers) {
    run_layers(*this, layers);
    return normed(layers.norm);
  }
};

/// [batch, length, embed]
Tensor embedded(const GpuMatrix& table, const Tensor& tokens) {
  return table.rows(tokens.local().data<int32_t>(), tokens.spec().axes);
}

/// int32 [items, length]: 1 where the prefix is.
HostArray marks_of(std::span<const int32_t> prefix, int64_t length) {
  HostArray marks(DType::i32, {std::ssize(prefix), length});
  for (int64_t i = 0; i < std::ssize(prefix); ++i)
    for (int64_t t = 0; t < prefix[static_cast<size_t>(i)]; ++t)
      marks.as<int32_t>()[static_cast<size_t>(i * length + t)] = 1;
  return marks;
}

Tensor encode(const GpuWeights& weights, const Tensor& ids, const Tensor& marks,
              std::vector<LayerRouting>* routings) {
  const StackSpec& stack = *weights.spec.encoder;
  return SequenceBackend{
      .weights = weights,
      .stack = stack,
      .mask = ops::with_ranges({.query_segments = marks, .key_segments = marks, .prefix = {}}),
      .x = embedded(weights.encoder_embedding, ids),
      .token_mask = stack.layer.masks_padding ? marks : Tensor(),
      .routings = routings}
      .run(weights.encoder);
}

}  // namespace

Tensor encode(const GpuWeights& weights, const HostArray& tokens, const HostArray& segments) {
  return encode(weights, Tensor::from_host(tokens, kTokenAxes),
                Tensor::from_host(segments, kTokenAxes), nullptr);
}

TargetOutput run_targets(const GpuWeights& weights, const HostArrays& batch) {
  const ModelSpec& spec = weights.spec;
  const Rows rows = Rows::all(batch);
  std::vector<LayerRouting> routings;
  const Tensor segments =
      mask_segments(batch, "decoder_target_tokens", "decoder_segment_ids", rows);
  SequenceBackend backend{
      .weights = weights,
      .stack = spec.decoder,
      .mask = {.query_segments = segments, .key_segments = segments, .prefix = {}, .causal = true},
      .x = embedded(weights.embedding, rows_of(batch, rows, "decoder_input_tokens")),
      .token_mask = spec.decoder.layer.masks_padding ? decoder_token_mask(batch, rows) : Tensor(),
      .routings = &routings};
  if (spec.encoder) {
    const Tensor inputs = mask_segments(batch, "encoder_input_tokens", "encoder_segment_ids", rows);
    backend.encoded =
        encode(weights, rows_of(batch, rows, "encoder_input_tokens"), inputs, &routings);
    backend.cross_mask =
        ops::with_ranges({.query_segments = segments, .key_segments = inputs, .prefix = {}});
  } else if (spec.inputs_bidirectional_attention && batch.contains("decoder_causal_attention")) {
    backend.mask.prefix = rows_of(batch, rows, "decoder_causal_attention");
  }
  backend.mask = ops::with_ranges(backend.mask);
  const Tensor hidden = backend.run(weights.decoder);
  return {hidden, {weights.logits, spec.logits_via_embedding, spec.logit_scale()}, routings};
}

void run_prefix(const GpuWeights& weights, const HostArray& tokens, std::span<const int32_t> prefix,
                bool bidirectional, const PrefixSink& sink) {
  const Tensor marks = Tensor::from_host(marks_of(prefix, tokens.shape[1]), kTokenAxes);
  SequenceBackend backend{.weights = weights,
                          .stack = weights.spec.decoder,
                          .mask = ops::with_ranges({.query_segments = marks,
                                                    .key_segments = marks,
                                                    .prefix = bidirectional ? marks : Tensor(),
                                                    .causal = true}),
                          .x = embedded(weights.embedding, Tensor::from_host(tokens, kTokenAxes)),
                          .sink = sink};
  run_layers(backend, weights.decoder);
}

}  // namespace quintet::decoding
