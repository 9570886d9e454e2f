#include "models/decoding/device_encoder.h"

#include "models/decoding/device_inputs.h"

namespace quintet::decoding {
namespace {

Tensor run(const DeviceWeights& weights, const Tensor& tokens, const Tensor& segments) {
  const DeviceWeights::Encoder& encoder = *weights.encoder;
  const ops::AttentionMask mask{.query_segments = segments, .key_segments = segments, .prefix = {}};
  const auto normed = [&](const Tensor& x, const Tensor& norm) {
    const Tensor h = ops::rms_norm(x, norm);
    return weights.spec.encoder->masks_padding ? ops::mask_tokens(h, segments) : h;
  };
  const std::vector<Axis>& axes = tokens.spec().axes;
  Tensor x = weights.embedding.rows(tokens.local().data<int32_t>(),
                                    {"tokens", axes[0].size * axes[1].size});
  x = with_axes(x, {axes[0], axes[1], x.spec().axes[1]});  // [batch, length, embed]
  for (const DeviceWeights::EncoderLayer& layer : encoder.layers) {
    const Tensor h = normed(x, layer.norm);
    const Tensor attended = ops::attention(ops::matmul(h, layer.query), ops::matmul(h, layer.key),
                                           ops::matmul(h, layer.value), encoder.bias_table, mask,
                                           {.num_heads = weights.layer().num_heads,
                                            .max_distance = weights.layer().max_distance,
                                            .bidirectional = true});  // [batch, length, joined_kv]
    x = ops::add(x, ops::matmul(attended, layer.out));
    const DeviceWeights::Mlp& mlp = layer.mlp;
    const Tensor y = ops::mlp(normed(x, mlp.norm), mlp.wi_0, mlp.wi_1, mlp.wo, mlp.activations);
    x = ops::add(x, y);
  }
  return normed(x, encoder.norm);
}

}  // namespace

Tensor encode(const BaseModel& model, const DeviceWeights& weights, const HostArray& tokens,
              const HostArray& segments) {
  const std::vector<std::string> axes{axis::kBatch, axis::kLength};
  const Tensor x = Tensor::from_host(tokens, axes), marks = Tensor::from_host(segments, axes);
  if (weights.encoder) return run(weights, x, marks);
  return model.encode(x, marks, {.dropless = true});
}

}  // namespace quintet::decoding
