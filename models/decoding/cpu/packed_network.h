#pragma once
// A network's parameters in the form generation reads them: every matrix packed into panels,
// projections of the same input side by side. Made once from T5X-named arrays, one tensor at a
// time, so that the source may drop each after use.
//
//   const PackedNetwork network(model.spec(), [&](const std::string& name) { return view(name); });

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention/buckets.h"
#include "kernels/prepacked_matmul/prepacked_matmul.h"
#include "models/decoding/network/parameter_source.h"
#include "models/decoding/network/weights.h"
#include "runtime/base/view.h"
#include "runtime/mesh/shared_memory_group.h"

namespace quintet::decoding {

/// One of several that share work: a thread of a team, a rank of a group.
struct Part {
  int64_t index = 0, count = 1;
  /// This part's share of `units` units.
  int64_t begin(int64_t units) const { return units * index / count; }
  int64_t end(int64_t units) const { return units * (index + 1) / count; }
};

/// The columns of a matrix, or of activations, that a rank holds and computes.
struct Columns {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
  bool contains(int64_t column) const { return column >= begin && column < end; }
};

/// Activations of a pass, which ranks that hold a network together share: each writes the columns that it
/// computes, and after they have waited for each other all read whole rows.
class SharedActivations {
 public:
  /// All make one together.
  SharedActivations(SharedMemoryGroup* ranks, int64_t floats) {
    if (ranks == nullptr) own_.resize(static_cast<size_t>(floats));
    next_ = ranks == nullptr ? own_.data() : ranks->floats(floats);
  }
  /// The next of the floats.
  float* take(int64_t floats) { return std::exchange(next_, next_ + floats); }

 private:
  std::vector<float> own_;
  float* next_;
};

struct PackedMlp {
  PackedMatrix in;  // [embed, width], or both gates' panels by turns
  PackedMatrix out;
  int64_t width = 0;
  Columns columns;                      // of the width, this rank's
  std::vector<Activation> activations;  // one, or two for a gated MLP

  /// Panels of `in` that stay together: the gates of the same columns.
  int64_t unit() const { return std::ssize(activations); }
};

struct PackedExperts {
  std::vector<float> router;       // [embed, experts]
  std::vector<float> router_bias;  // [experts], or empty
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
  ///
  /// `ranks`: together they hold the network (tensor parallelism), each the columns of every matrix that it
  /// computes: its heads of q, k and v, its part of the width of MLPs and of every expert, of the vocabulary, and of the embedding
  /// axis for `out` and `wo`. Split by columns, every sum over k is taken by one rank in one order, so that results are one rank's bit for bit;
  /// split by rows, as Megatron does, partial sums would be added in another order. All make one together, and
  /// then call what computes with it in the same order. Routers are on every rank, which all route alike. Throws a
  /// usage error for fewer heads than ranks.
  PackedNetwork(ModelSpec spec, const ParameterSource& source, WeightType weights = WeightType::f32,
                SharedMemoryGroup* ranks = nullptr);

  /// Its heads are this rank's.
  const ModelSpec& spec() const { return spec_; }
  /// Null: one rank has it all.
  SharedMemoryGroup* ranks() const { return ranks_; }
  /// Of attention's results, [rows, joined_kv of all ranks].
  const Columns& head_columns() const { return head_columns_; }
  int64_t all_joined_kv() const { return all_joined_kv_; }
  /// This rank's of n columns that stand in panels.
  Columns columns(int64_t n) const;
  const PackedStack& encoder() const { return encoder_; }
  const PackedStack& decoder() const { return decoder_; }
  const PackedMatrix& logits() const { return logits_; }
  float logit_scale() const { return logit_scale_; }
  /// Copies a token's embedding in a stack to out [embed]; throws kData if the token is outside the
  /// vocabulary. If another rank has the token's embedding, that one copies it.
  void embed(const PackedStack& stack, int32_t token, float* out) const;
  /// Of all weights.
  int64_t bytes() const;
  /// What a step of the decoder does with weights for `rows` tokens: with those of its layers, but for the keys and values
  /// of the encoder's output, which were made before, and of the logits; of experts as many as rows may choose are read.
  struct StepWork {
    std::vector<const PackedMatrix*> matrices;
    int64_t bytes = 0;
    std::map<WeightType, int64_t> multiply_adds;
  };
  StepWork step_work(int64_t rows) const;

  /// "encoder/layers_0", .., "decoder/layers_0", .., "logits".
  std::vector<std::string> parts() const;
  /// Of a part; they share its weights.
  std::vector<PackedMatrix> matrices(const std::string& part) const;
  /// A copy, which shares the weights, with one part of another network of this specification.
  PackedNetwork with_part(const PackedNetwork& other, const std::string& part) const;

 private:
  /// [this rank's of vocab, embed], float32 or bfloat16; null if tied: then read from packed logits.
  struct TokenTable {
    std::shared_ptr<float> rows;
    DType dtype = DType::f32;

    void set_rows(int64_t first, const StoredMatrix& from, int64_t count, int64_t width);
    void row(int32_t token, int64_t width, float* out) const;
  };
  /// The layer of a part; none for logits.
  PackedLayer* find(const std::string& part);
  Part part_of_ranks() const;
  ModelSpec spec_;
  SharedMemoryGroup* ranks_ = nullptr;
  Columns head_columns_;
  int64_t all_joined_kv_ = 0;
  TokenTable encoder_table_, decoder_table_;
  PackedStack encoder_, decoder_;
  PackedMatrix logits_;
  float logit_scale_ = 1;
};

}  // namespace quintet::decoding
