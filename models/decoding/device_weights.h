#pragma once
// A decoder's parameters as DeviceDecoder reads them, in the memory of the current device.

#include <vector>

#include "models/base_model.h"

namespace quintet::decoding {

constexpr int64_t kMaxDistance = 128;  // of T5's relative position buckets

struct DeviceWeights {
  /// What stands between a norm and a residual sum: a dense MLP or a mixture of experts.
  struct Mlp {
    Tensor norm, wi_0, wi_1, wo;  // wi_1 absent unless gated; of experts [experts, ...] each
    std::vector<std::string> activations;
    Tensor router;       // [embed, experts]; absent: dense
    int64_t chosen = 0;  // experts of a row
  };
  struct Layer {
    Tensor self_norm, query, key, value, qkv, self_out;  // qkv: the three side by side
    Tensor cross_norm, cross_query, cross_key, cross_value, cross_out;  // absent in a decoder alone
    std::vector<Mlp> mlps;  // one, or with ST-MoE's extra MLP two
  };
  LayerConfig config;
  int64_t vocab_size = 0;
  bool has_encoder = false;
  std::vector<Layer> layers;
  Tensor embedding, norm;
  Tensor bias_table, bias;  // [heads, buckets]; [heads, distances back]
  Projection projection;

  /// Of an EncoderDecoderModel or a DecoderOnlyModel. Throws a usage error if experts of the decoder
  /// choose tokens.
  explicit DeviceWeights(const BaseModel& model);
  DType dtype() const { return embedding.spec().dtype; }
  int64_t joined_kv() const { return config.num_heads * config.head_dim; }
};

}  // namespace quintet::decoding
