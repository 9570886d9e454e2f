#pragma once
// A decoder's parameters as DeviceDecoder reads them, in the memory of the current device; in fewer bits
// also a dense encoder's.

#include <optional>
#include <vector>

#include "models/base_model.h"
#include "models/decoding/device_matrix.h"

namespace quintet::decoding {

struct DeviceWeights {
  /// What stands between a norm and a residual sum: a dense MLP or a mixture of experts.
  struct Mlp {
    Tensor norm;
    DeviceMatrix wi_0, wi_1, wo;  // wi_1 absent unless gated; of experts [experts, ...] each
    std::vector<std::string> activations;
    Tensor router;       // [embed, experts]; absent: dense
    int64_t chosen = 0;  // experts of a row
  };
  struct Layer {
    Tensor self_norm;
    DeviceMatrix query, key, value, qkv, self_out;  // qkv: the three side by side
    Tensor cross_norm;                              // as the rest: absent in a decoder alone
    DeviceMatrix cross_query, cross_key, cross_value, cross_out;
    std::vector<Mlp> mlps;  // one, or with ST-MoE's extra MLP two
  };
  struct EncoderLayer {
    Tensor norm;
    DeviceMatrix query, key, value, out;
    Mlp mlp;
  };
  struct Encoder {
    std::vector<EncoderLayer> layers;
    Tensor norm, bias_table;
  };
  ModelSpec spec;
  std::vector<Layer> layers;
  std::optional<Encoder> encoder;  // of weights in fewer bits; else the model encodes
  DeviceMatrix embedding, logits;  // logits: [embed, vocab], or tied: the embedding
  Tensor norm;
  Tensor bias_table, bias;  // [heads, buckets]; [heads, distances back]

  /// An encoder with experts stays the model's. Throws
  /// a usage error if experts of the decoder choose tokens, kData naming a parameter of the source that
  /// does not fit.
  explicit DeviceWeights(const BaseModel& model, const KeptWeights& kept = {});
  DType dtype() const { return embedding.wide; }
  const LayerConfig& layer() const { return spec.decoder.layer; }
  int64_t joined_kv() const { return layer().joined_kv(); }
};

}  // namespace quintet::decoding
