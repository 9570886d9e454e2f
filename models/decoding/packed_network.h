#pragma once
// A network's parameters in the form generation reads them: every matrix packed into panels,
// projections of the same input side by side. Made once from T5X-named arrays, one tensor at a
// time, so that the source may drop each after use.
//
//   const PackedNetwork network(shape_of(config),
//                               [&](const std::string& name) { return view(name); });

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/packed_matmul/packed_matmul.h"
#include "models/moe.h"
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
  SparseStack sparse_encoder{}, sparse_decoder{};

  bool decoder_only() const { return num_encoder_layers == 0; }
  int64_t joined_kv() const { return num_heads * head_dim; }
};
NetworkShape shape_of(const T5Config& config);
NetworkShape shape_of(const TransformerConfig& config);

/// A parameter in float32, or as models/decoding/quantized_parameters.h makes it.
struct StoredParameter {
  View values;
  const float* scales = nullptr;  // int8: one a column, of tied embeddings a row

  StoredParameter(const View& v, const float* s = nullptr) : values(v), scales(s) {}  // NOLINT
};
/// The parameter of that name; the view need only last until the next call.
using ParameterSource = std::function<StoredParameter(const std::string& name)>;

struct PackedAttention {
  std::vector<float> norm;  // [embed] gain of the norm before it
  PackedMatrix in;  // self: [embed, 3 joined_kv] query, key, value; cross: [embed, joined_kv] query
  PackedMatrix key_value;  // cross only: [embed, 2 joined_kv], of the encoder's output
  PackedMatrix out;        // [joined_kv, embed]
};

struct PackedMlp {
  std::vector<float> norm;  // of an expert: none
  PackedMatrix in;          // [embed, width], or both gates' panels by turns
  PackedMatrix out;
  int64_t width = 0;
  std::vector<Activation> activations;  // one, or two for a gated MLP
};

struct PackedExperts {
  std::vector<float> router;  // [embed, experts]
  int64_t chosen = 1;         // experts a row
  std::vector<PackedMlp> experts;
};

struct PackedLayer {
  PackedAttention self, cross;
  PackedMlp mlp;                         // of a sparse layer: its norm alone
  std::optional<PackedExperts> experts;  // of a sparse layer
  std::optional<PackedMlp> extra_mlp;    // after the experts
};

/// Encoder output [batch, length, embed] for tokens [batch, length], 0 being padding.
using EncoderFunction = std::function<std::vector<float>(std::span<const int32_t> tokens,
                                                         int64_t batch, int64_t length)>;

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
  /// `encoder`: encodes in place of the packed encoder, which is not made then. Encoders with
  /// sparse layers need one: they route all tokens of a batch together. `weights`: of all matrices;
  /// with 8 bits the MLP's second matrix, `wo`, stays in bfloat16, because what it is multiplied
  /// with has a few large values (transformers keeps it in float32 for that), as does a table of
  /// embeddings that are not the logits' too.
  PackedNetwork(NetworkShape shape, const ParameterSource& source, EncoderFunction encoder = {},
                WeightType weights = WeightType::f32);

  const NetworkShape& shape() const { return shape_; }
  const PackedStack& encoder() const { return encoder_; }
  const PackedStack& decoder() const { return decoder_; }
  const PackedMatrix& logits() const { return logits_; }
  float logit_scale() const { return logit_scale_; }
  const EncoderFunction& encoder_function() const { return encode_; }
  /// Copies a token's embedding to out [embed]; throws kData if the token is outside the
  /// vocabulary.
  void embed(int32_t token, float* out) const;
  /// Of all weights.
  int64_t bytes() const;

  /// "encoder/layers_0", .., "decoder/layers_0", .., "logits".
  std::vector<std::string> parts() const;
  /// Of a part; they share its weights.
  std::vector<PackedMatrix> matrices(const std::string& part) const;
  /// A copy, which shares the weights, with one part of another network of this shape.
  PackedNetwork with_part(const PackedNetwork& other, const std::string& part) const;

 private:
  /// The layer of a part; none for logits.
  PackedLayer* find(const std::string& part);
  NetworkShape shape_;
  // [vocab, embed], float32 or bfloat16; null if tied: then read from packed logits.
  std::shared_ptr<float> embedding_;
  DType embedding_dtype_ = DType::f32;
  EncoderFunction encode_;
  PackedStack encoder_, decoder_;
  PackedMatrix logits_;
  float logit_scale_ = 1;
};

}  // namespace quintet::decoding
