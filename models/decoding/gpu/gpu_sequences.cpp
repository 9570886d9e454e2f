#include "models/decoding/gpu/gpu_sequences.h"

#include "models/decoding/gpu/gpu_experts.h"
#include "models/decoding/network/layer.h"

namespace quintet::decoding {
namespace {

const std::vector<std::string> kTokenAxes{axis::kBatch, axis::kLength};

/// A layer over whole sequences (layer.h).
struct SequenceBackend {
  const GpuWeights& weights;
  const StackSpec& stack;
  const ops::AttentionMask mask;
  const PrefixSink sink;           // or empty
  Tensor x;                        // [batch, length, embed]
  Tensor residual{};               // likewise: what the next norm adds to x; absent at first
  Tensor query{}, key{}, value{};  // [batch, length, joined_kv]; query: attention's result, too

  Tensor normed(const Tensor& norm) {
    ops::ResidualNorm sum{x, {}};
    if (residual.absent())
      sum.out = ops::rms_norm(x, norm);
    else
      sum = ops::add_rms_norm(x, residual, norm);
    x = sum.x_new;
    return stack.masks_padding ? ops::mask_tokens(sum.out, mask.query_segments) : sum.out;
  }
  void project(size_t i, const GpuAttention& attention) {
    const Tensor h = normed(attention.norm);
    const std::vector<GpuMatrix>& parts = attention.in.parts;
    key = ops::matmul(h, parts[1]);
    value = ops::matmul(h, parts[2]);
    if (sink) sink(i, key, value);
    query = ops::matmul(h, parts[0]);
  }
  void attend_self(size_t, const GpuAttention& attention) {
    query = ops::attention(query, key, value, attention.relative_bias.table, mask,
                           {.num_heads = stack.layer.num_heads,
                            .max_distance = stack.layer.max_distance,
                            .bidirectional = stack.is_encoder});
  }
  void attend_cross(size_t) { QT_ASSERT(false); }  // whole sequences are encoders' and prefixes
  void add_product(const GpuMatrix& matrix) {
    residual = ops::matmul(query, matrix);
    weights.sum(residual);
  }
  void add_mlp(const Tensor& norm, const GpuForm::Mlp& mlp) {
    residual = ops::mlp(normed(norm), mlp.wi_0, mlp.wi_1, mlp.wo, mlp.activations);
    weights.sum(residual);
  }
  void add_mlp(const Tensor& norm, const GpuForm::Experts& experts) {
    const Tensor h = normed(norm);
    residual =
        through_experts(weights, experts, h, inference_routing(experts.moe, h.size(0), h.size(1)));
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

}  // namespace

Tensor encode(const GpuWeights& weights, const HostArray& tokens, const HostArray& segments) {
  const Tensor ids = Tensor::from_host(tokens, kTokenAxes);
  const Tensor marks = Tensor::from_host(segments, kTokenAxes);
  SequenceBackend backend{weights,
                          *weights.spec.encoder,
                          {.query_segments = marks, .key_segments = marks, .prefix = {}},
                          {},
                          embedded(weights.encoder_embedding, ids)};
  run_layers(backend, weights.encoder);
  return backend.normed(weights.encoder.norm);
}

void run_prefix(const GpuWeights& weights, const HostArray& tokens, std::span<const int32_t> prefix,
                bool bidirectional, const PrefixSink& sink) {
  const Tensor marks = Tensor::from_host(marks_of(prefix, tokens.shape[1]), kTokenAxes);
  SequenceBackend backend{weights,
                          weights.spec.decoder,
                          {.query_segments = marks,
                           .key_segments = marks,
                           .prefix = bidirectional ? marks : Tensor(),
                           .causal = true},
                          sink,
                          embedded(weights.embedding, Tensor::from_host(tokens, kTokenAxes))};
  run_layers(backend, weights.decoder);
}

}  // namespace quintet::decoding
