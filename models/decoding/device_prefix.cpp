#include "models/decoding/device_prefix.h"

#include "models/decoding/device_experts.h"

namespace quintet::decoding {
namespace {

/// int32 [items, length]: 1 where the prefix is.
HostArray marks_of(std::span<const int32_t> prefix, int64_t length) {
  HostArray marks(DType::i32, {std::ssize(prefix), length});
  for (int64_t i = 0; i < std::ssize(prefix); ++i)
    for (int64_t t = 0; t < prefix[static_cast<size_t>(i)]; ++t)
      marks.as<int32_t>()[static_cast<size_t>(i * length + t)] = 1;
  return marks;
}

/// x, y: [batch, length, embed]
Tensor after_norm(const DeviceWeights::Mlp& mlp, const Tensor& x) {
  const Tensor h = ops::rms_norm(x, mlp.norm);
  if (!mlp.router.absent()) return through_experts(mlp, h);
  return ops::mlp(h, mlp.wi_0, mlp.wi_1, mlp.wo, mlp.activations);
}

}  // namespace

void run_prefix(const DeviceWeights& weights, const HostArray& tokens,
                std::span<const int32_t> prefix, bool bidirectional, const PrefixSink& sink) {
  const Tensor marks =
      Tensor::from_host(marks_of(prefix, tokens.shape[1]), {axis::kBatch, axis::kLength});
  const ops::AttentionMask mask{.query_segments = marks,
                                .key_segments = marks,
                                .prefix = bidirectional ? marks : Tensor(),
                                .causal = true};
  Tensor x = ops::embed(Tensor::from_host(tokens, {axis::kBatch, axis::kLength}),
                        weights.embedding);  // [batch, length, embed]
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const DeviceWeights::Layer& layer = weights.layers[i];
    const Tensor h = ops::rms_norm(x, layer.self_norm);
    const Tensor keys = ops::matmul(h, layer.key), values = ops::matmul(h, layer.value);
    sink(i, keys, values);
    const Tensor attended =
        ops::attention(ops::matmul(h, layer.query), keys, values, weights.bias_table, mask,
                       {.num_heads = weights.layer().num_heads,
                        .max_distance = weights.layer().max_distance,
                        .bidirectional = false});
    x = ops::add(x, ops::matmul(attended, layer.self_out));
    for (const DeviceWeights::Mlp& mlp : layer.mlps) x = ops::add(x, after_norm(mlp, x));
  }
}

}  // namespace quintet::decoding
