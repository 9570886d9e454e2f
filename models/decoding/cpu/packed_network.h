#pragma once
// A network's parameters in the form generation reads them: every matrix packed into panels,
// projections of the same input side by side. Made once from T5X-named arrays, one tensor at a
// time, so that the source may drop each after use.
//
//   const PackedNetwork network(model.spec(), [&](const std::string& name) { return view(name); });

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/attention/buckets.h"
#include "kernels/prepacked_matmul/prepacked_matmul.h"
#include "models/decoding/network/parameter_source.h"
#include "models/decoding/network/weights.h"
#include "runtime/base/view.h"

namespace quintet::decoding {

struct PackedMlp {
  PackedMatrix in;  // [embed, width], or both gates' panels by turns
  PackedMatrix out;
  int64_t width = 0;
  std::vector<Activation> activations;  // one, or two for a gated MLP
};

struct PackedExperts {
  std::vector<float> router;  // [embed, experts]
  MoeConfig moe;
  std::vector<PackedMlp> experts;
};

struct PackedBias {
  BucketRule buckets;
  std::vector<float> table;  // [heads, buckets]
};

/// What the CPU makes of parameters.
struct PackedForm {
  using Vector = std::vector<float>;
  using Matrix = PackedMatrix;
  using Projections = PackedMatrix;  // side by side
  using Mlp = PackedMlp;
  using Experts = PackedExperts;
  using Bias = std::shared_ptr<const PackedBias>;
};
using PackedAttention = AttentionWeights<PackedForm>;
using PackedLayer = LayerWeights<PackedForm>;
using PackedStack = StackWeights<PackedForm>;

class PackedNetwork {
 public:
  /// Throws kData naming a parameter that is missing or of another size, with both sizes.
  /// `weights`: of all matrices; with 8 bits the MLP's second matrix, `wo`, stays in bfloat16, because what it is multiplied
  /// with has a few large values (transformers keeps it in float32 for that), as does a table of
  /// embeddings that are not the logits' too.
  PackedNetwork(ModelSpec spec, const ParameterSource& source,
                WeightType weights = WeightType::f32);

  const ModelSpec& spec() const { return spec_; }
  const PackedStack& encoder() const { return encoder_; }
  const PackedStack& decoder() const { return decoder_; }
  const PackedMatrix& logits() const { return logits_; }
  float logit_scale() const { return logit_scale_; }
  /// Copies a token's embedding in a stack to out [embed]; throws kData if the token is outside the
  /// vocabulary.
  void embed(const PackedStack& stack, int32_t token, float* out) const;
  /// Of all weights.
  int64_t bytes() const;

  /// "encoder/layers_0", .., "decoder/layers_0", .., "logits".
  std::vector<std::string> parts() const;
  /// Of a part; they share its weights.
  std::vector<PackedMatrix> matrices(const std::string& part) const;
  /// A copy, which shares the weights, with one part of another network of this specification.
  PackedNetwork with_part(const PackedNetwork& other, const std::string& part) const;

 private:
  /// [vocab, embed], float32 or bfloat16; null if tied: then read from packed logits.
  struct TokenTable {
    std::shared_ptr<float> rows;
    DType dtype = DType::f32;

    void set_rows(int64_t first, const StoredMatrix& from, int64_t count, int64_t width);
    void row(int32_t token, int64_t width, float* out) const;
  };
  /// The layer of a part; none for logits.
  PackedLayer* find(const std::string& part);
  ModelSpec spec_;
  TokenTable encoder_table_, decoder_table_;
  PackedStack encoder_, decoder_;
  PackedMatrix logits_;
  float logit_scale_ = 1;
};

}  // namespace quintet::decoding
