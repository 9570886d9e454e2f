#include "models/decoding/device_layers.h"

#include "models/decoding/device_products.h"

namespace quintet::decoding {

Tensor queue_layers(const DeviceWeights& weights, Tensor x, DecodeRows rows, const Tensor& attended,
                    const StepAttention& attention) {
  const Products products(x.size(0));
  const int64_t joined = weights.joined_kv();
  rows.dtype = weights.dtype();
  rows.heads = weights.layer().num_heads;
  rows.head_dim = weights.layer().head_dim;
  rows.out = at(attended, 0);
  rows.out_stride = joined;
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const DeviceWeights::Layer& layer = weights.layers[i];
    const Tensor qkv = products.normed(x, layer.self_norm, layer.qkv);
    rows.query = at(qkv, 0);
    rows.query_stride = 3 * joined;
    attention.self(i, rows, at(qkv, joined), at(qkv, 2 * joined));
    x = products.added(x, attended, layer.self_out);
    if (weights.spec.decoder.cross_attention) {
      const Tensor query = products.normed(x, layer.cross_norm, layer.cross_query);
      rows.query = at(query, 0);
      rows.query_stride = joined;
      attention.cross(i, rows);
      x = products.added(x, attended, layer.cross_out);
    }
    for (const DeviceWeights::Mlp& mlp : layer.mlps)
      x = mlp.router.absent() ? products.added(x, products.activated(x, mlp), mlp.wo)
                              : products.with_experts(x, mlp);
  }
  return x;
}

}  // namespace quintet::decoding
