#pragma once
// A network's parameters as GpuDecoder reads them, in the memory of the current device.

#include <vector>

#include "models/base_model.h"
#include "models/decoding/gpu/gpu_matrix.h"
#include "models/decoding/network/weights.h"

namespace quintet::decoding {

/// Whether so many GPUs can hold a network together: they divide its heads and the widths of its MLPs and experts.
bool has_equal_parts(const ModelSpec& spec, int64_t ranks);

/// What a GPU makes of parameters.
struct GpuForm {
  using Vector = Tensor;
  using Matrix = GpuMatrix;
  struct Projections {
    std::vector<GpuMatrix> parts;  // one by one, for whole sequences
    GpuMatrix joined;              // side by side, for steps
  };
  struct Mlp {
    GpuMatrix wi_0, wi_1, wo;  // wi_1 absent unless gated; of experts [experts, ...] each
    std::vector<std::string> activations;
  };
  struct Experts {
    Tensor router;       // [embed, experts]
    Tensor router_bias;  // [experts], or absent
    MoeConfig moe;
    Mlp mlp;

    int64_t chosen() const { return moe.router.num_selected_experts; }  // of a row
  };
  struct Bias {
    Tensor table;        // [heads, buckets]
    Tensor by_distance;  // of a decoder: [heads, distances back]
  };
};
using GpuAttention = AttentionWeights<GpuForm>;

struct GpuWeights {
  ModelSpec spec;  // its heads are this rank's
  StackWeights<GpuForm> decoder;
  StackWeights<GpuForm> encoder;           // of a decoder alone: empty
  GpuMatrix encoder_embedding, embedding;  // embedding: the decoder's; may be one
  GpuMatrix logits;                        // [embed, vocab], or tied: the embedding
  Group ranks;                             // that hold the network together; alone: this has it all

  /// Throws a usage error if experts of the decoder choose
  /// tokens, kData naming a parameter of the source that does not fit.
  ///
  /// weights.ranks: each has an equal part of the heads and of the widths of MLPs and of every expert, columns of
  /// the matrices that make them and rows of those that read them (Megatron-LM, 2019), and all of the embeddings,
  /// routers and logits. All make theirs together, then call what computes with it in the same order, and get the
  /// same bits: what they computed in part is added up by one all-reduce after `out` and one after `wo`, which gives
  /// all the same. Throws a usage error unless has_equal_parts().
  explicit GpuWeights(const BaseModel& model, const InferenceWeights& weights = {})
      : GpuWeights(model.spec(), model.parameters(), weights) {}
  /// Of a part of the model, as ModelSpec::encoder_alone() is; what a network without decoder reads is
  /// all that is loaded.
  GpuWeights(ModelSpec spec, const Parameters& parameters, const InferenceWeights& weights);
  DType dtype() const { return (spec.encoder ? encoder_embedding : embedding).compute_dtype; }
  const LayerConfig& layer() const { return spec.decoder.layer; }
  int64_t joined_kv() const { return layer().joined_kv(); }
  /// y, of which each rank has computed a part, becomes the sum of the parts.
  void sum(const Tensor& y) const {
    if (ranks.size() > 1) ranks.all_reduce(y.raw(), y.spec().elements(), y.spec().dtype).wait();
  }
};

}  // namespace quintet::decoding
