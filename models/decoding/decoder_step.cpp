#include "models/decoding/decoder_step.h"

#include <omp.h>

#include <algorithm>
#include <optional>

#include "models/decoding/experts.h"
#include "models/decoding/team_barrier.h"

namespace quintet::decoding {
namespace {

/// Its phases are split over the parts of a team; each ends where a part needs what others made.
class Phases {
 public:
  Phases(const PackedNetwork& network, const DecoderStep& step)
      : network_(network),
        step_(step),
        layer_(network.spec().decoder.layer),
        rows_(static_cast<int64_t>(step.rows.size())),
        joined_(layer_.joined_kv()) {
    x_.resize(static_cast<size_t>(rows_ * layer_.emb_dim));
    for (int64_t r = 0; r < rows_; ++r) network.embed(row(r).token, x_.data() + r * layer_.emb_dim);
    qkv_.resize(static_cast<size_t>(rows_ * 3 * joined_));
    attended_.resize(static_cast<size_t>(rows_ * joined_));
    const MoeConfig& moe = network.spec().decoder.sparse.moe;
    hidden_.resize(static_cast<size_t>(
        rows_ * std::max(layer_.mlp_dim, moe.router.num_selected_experts * moe.mlp_dim)));
  }

  /// logits: [rows, vocab]. Called by all threads of a parallel region.
  void run(Part part, TeamBarrier& barrier, float* logits) const {
    Own own;
    const auto& layers = network_.decoder().layers;
    for (size_t l = 0; l < layers.size(); ++l) {
      const PackedLayer& layer = layers[l];
      project(layer.self, 3 * joined_, part, own, first_panel(layer.self.out, part));
      barrier.wait();
      attend_self(static_cast<int64_t>(l), part, own);
      barrier.wait();
      const bool has_cross = layer.cross.in.panels() > 0;
      add_product(attended_.data(), joined_, layer.self.out, part, own,
                  first_panel(has_cross ? layer.cross.in : layer.mlp.in, part));
      barrier.wait();
      if (has_cross) {
        project(layer.cross, joined_, part, own, first_panel(layer.cross.out, part));
        barrier.wait();
        attend_cross(static_cast<int64_t>(l), part, own);
        barrier.wait();
        add_product(attended_.data(), joined_, layer.cross.out, part, own,
                    first_panel(layer.mlp.in, part, gates(layer.mlp)));
        barrier.wait();
      }
      const void* next =
          first_panel(l + 1 < layers.size() ? layers[l + 1].self.in : network_.logits(), part);
      if (layer.experts)
        add_experts(layer, part, own, barrier);
      else
        add_mlp(layer.mlp, part, own, barrier, next);
      if (layer.extra_mlp) add_mlp(*layer.extra_mlp, part, own, barrier, next);
    }
    const int64_t vocab = network_.spec().vocab_size;
    const float scale = network_.logit_scale();
    own.packed.pack_normalized(x_.data(), rows_, layer_.emb_dim, network_.decoder().norm.data(),
                               kNormEpsilon);
    multiply(
        own.packed, network_.logits(), network_.logits().share(part.index, part.count),
        [&](const Tile& tile) { scale_tile(tile, logits, vocab, scale); },
        first_panel(layers.front().self.in, part));
  }

 private:
  struct Own {  // a part's
    PackedRows packed;
    std::vector<float> scratch, normalized;
    std::vector<SharedQuery> queries;
  };

  static int64_t gates(const PackedMlp& mlp) { return mlp.activations.size() == 2 ? 2 : 1; }

  void add_mlp(const PackedMlp& mlp, Part part, Own& own, TeamBarrier& barrier,
               const void* next) const {
    own.packed.pack_normalized(x_.data(), rows_, layer_.emb_dim, mlp.norm.data(), kNormEpsilon);
    mlp_activations(own.packed, mlp, part, hidden_.data(), first_panel(mlp.out, part));
    barrier.wait();
    add_product(hidden_.data(), mlp.width, mlp.out, part, own, next);
    barrier.wait();
  }

  /// Every part routes all rows: that is little, and they agree without waiting.
  void add_experts(const PackedLayer& layer, Part part, Own& own, TeamBarrier& barrier) const {
    own.packed.pack_normalized(x_.data(), rows_, layer_.emb_dim, layer.mlp.norm.data(),
                               kNormEpsilon);
    own.normalized.resize(static_cast<size_t>(rows_ * layer_.emb_dim));
    own.packed.unpack(own.normalized.data());
    const ExpertRows routed = route_rows(*layer.experts, own.normalized.data(), rows_);
    ExpertProducts::in(*layer.experts, routed, own.normalized.data(), part, own.packed,
                       hidden_.data());
    barrier.wait();
    ExpertProducts::out(*layer.experts, routed, hidden_.data(), part, own.packed, x_.data());
    barrier.wait();
  }

  /// Where the part's share of a matrix begins, to be fetched early; null if it has none.
  static const void* first_panel(const PackedMatrix& m, Part part, int64_t unit = 1) {
    const PanelRange share = m.share(part.index, part.count, unit);
    return share.begin < share.end ? m.panel(share.begin) : nullptr;
  }

  void project(const PackedAttention& attention, int64_t width, Part part, Own& own,
               const void* next) const {
    own.packed.pack_normalized(x_.data(), rows_, layer_.emb_dim, attention.norm.data(),
                               kNormEpsilon);
    multiply(
        own.packed, attention.in, attention.in.share(part.index, part.count),
        [&](const Tile& tile) { store_tile(tile, qkv_.data(), width); }, next);
  }

  void add_product(const float* input, int64_t k, const PackedMatrix& w, Part part, Own& own,
                   const void* next) const {
    own.packed.pack(input, rows_, k);
    multiply(
        own.packed, w, w.share(part.index, part.count),
        [&](const Tile& tile) { add_tile(tile, x_.data(), layer_.emb_dim); }, next);
  }

  const StepRow& row(int64_t r) const { return step_.rows[static_cast<size_t>(r)]; }

  /// Units are ordered by group, head, row, so that a part's rows of one item share what they read.
  void attend_self(int64_t layer, Part part, Own& own) const {
    const int64_t heads = layer_.num_heads, units = rows_ * heads;
    const int64_t begin = part.begin(units), end = part.end(units);
    for (const StepGroup& group : step_.groups) {
      const int64_t count = group.end - group.begin;
      for (int64_t u = std::max(begin, group.begin * heads); u < std::min(end, group.end * heads);
           ++u) {
        const int64_t within = u - group.begin * heads;
        attend_row(layer, within / count, group.begin + within % count, own);
      }
    }
  }

  void attend_row(int64_t layer, int64_t head, int64_t r, Own& own) const {
    const int64_t d = layer_.head_dim;
    const CachedHead keys = step_.layout.at(layer, head);
    const float* query = qkv_.data() + r * 3 * joined_ + head * d;
    float* place = row(r).place;
    if (place != nullptr) append_to_cache(keys, place, query + joined_, query + 2 * joined_, d);
    attend_cache(query, attended_.data() + r * joined_ + head * d, keys, row(r).past,
                 place != nullptr ? step_.bias->row(head, row(r).position) : nullptr, d,
                 own.scratch);
  }

  void attend_cross(int64_t layer, Part part, Own& own) const {
    const int64_t heads = layer_.num_heads, d = layer_.head_dim;
    const auto units = static_cast<int64_t>(step_.groups.size()) * heads;
    for (int64_t u = part.begin(units); u < part.end(units); ++u) {
      const StepGroup& group = step_.groups[static_cast<size_t>(u / heads)];
      const int64_t head = u % heads;
      const SharedKeys& keys = group.cross[layer * group.cross_layer + head];
      own.queries.clear();
      for (int64_t r = group.begin; r < group.end; ++r)
        own.queries.push_back({.query = qkv_.data() + r * joined_ + head * d,
                               .out = attended_.data() + r * joined_ + head * d,
                               .limit = keys.length,
                               .bias = nullptr});
      attend_shared(own.queries, keys, d, own.scratch);
    }
  }

  const PackedNetwork& network_;
  const DecoderStep& step_;
  const LayerConfig& layer_;  // sizes
  const int64_t rows_, joined_;
  mutable std::vector<float> x_, qkv_, attended_, hidden_;
};

}  // namespace

void run_step(const PackedNetwork& network, const DecoderStep& step, float* logits) {
  const Phases phases(network, step);
  std::optional<TeamBarrier> barrier;
#pragma omp parallel
  {
#pragma omp single
    barrier.emplace(omp_get_num_threads());
    phases.run({omp_get_thread_num(), omp_get_num_threads()}, *barrier, logits);
  }
}

}  // namespace quintet::decoding
