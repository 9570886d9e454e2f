#pragma once
// A network's parameters in the form generation reads them: every matrix packed into panels,
// projections of the same input side by side. Made once from T5X-named float32 arrays, one tensor
// at a time, so that the source may drop each after use.
//
//   const PackedNetwork network(shape_of(config), [&](const std::string& name) { return view(name);
//   });

#include <functional>
#include <string>
#include <vector>

#include "kernels/packed_matmul/packed_matmul.h"
#include "runtime/base/view.h"

namespace quintet {
struct T5Config;
struct TransformerConfig;
}  // namespace quintet

namespace quintet::decoding {

struct NetworkShape {
  int64_t vocab_size = 0, emb_dim = 0, num_heads = 0, head_dim = 0, mlp_dim = 0;
  int64_t num_encoder_layers = 0;  // 0: decoder only
  int64_t num_decoder_layers = 0;
  std::vector<std::string> mlp_activations;  // one, or two for a gated MLP
  bool logits_via_embedding = false;
  bool scale_attn_logits = false;  // packed into the query projection
  int64_t max_distance = 128;      // of the relative bias

  bool decoder_only() const { return num_encoder_layers == 0; }
  int64_t joined_kv() const { return num_heads * head_dim; }
};
NetworkShape shape_of(const T5Config& config);
NetworkShape shape_of(const TransformerConfig& config);

/// The parameter of that name, float32; the view need only last until the next call.
using ParameterSource = std::function<View(const std::string& name)>;

struct PackedAttention {
  std::vector<float> norm;  // [embed] gain of the norm before it
  PackedMatrix in;  // self: [embed, 3 joined_kv] query, key, value; cross: [embed, joined_kv] query
  PackedMatrix key_value;  // cross only: [embed, 2 joined_kv], of the encoder's output
  PackedMatrix out;        // [joined_kv, embed]
};

struct PackedMlp {
  std::vector<float> norm;
  PackedMatrix in;  // [embed, mlp], or both gates' panels by turns
  PackedMatrix out;
};

struct PackedLayer {
  PackedAttention self, cross;
  PackedMlp mlp;
};

struct PackedStack {
  std::vector<PackedLayer> layers;
  std::vector<float> norm;           // final
  std::vector<float> relative_bias;  // [heads, buckets]
  int64_t buckets = 0, max_distance = 128;
  bool bidirectional = false;
};

class PackedNetwork {
 public:
  /// Throws kData naming a parameter that is missing or of another size, with both sizes.
  PackedNetwork(NetworkShape shape, const ParameterSource& source);

  const NetworkShape& shape() const { return shape_; }
  const PackedStack& encoder() const { return encoder_; }
  const PackedStack& decoder() const { return decoder_; }
  const PackedMatrix& logits() const { return logits_; }
  float logit_scale() const { return logit_scale_; }
  bool gated() const { return shape_.mlp_activations.size() == 2; }
  Activation activation(size_t i) const { return activations_[i]; }
  /// Copies a token's embedding to out [embed]; throws kData if the token is outside the
  /// vocabulary.
  void embed(int32_t token, float* out) const;
  /// Of all weights.
  int64_t bytes() const;

 private:
  NetworkShape shape_;
  std::vector<Activation> activations_;
  std::shared_ptr<float> embedding_;  // [vocab, embed]; null if tied: then read from packed logits
  PackedStack encoder_, decoder_;
  PackedMatrix logits_;
  float logit_scale_ = 1;
};

}  // namespace quintet::decoding
