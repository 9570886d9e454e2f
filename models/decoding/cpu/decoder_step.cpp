#include "models/decoding/cpu/decoder_step.h"

#include <omp.h>

#include <algorithm>
#include <optional>

#include "kernels/prepacked_matmul/fetch_queue.h"
#include "models/decoding/cpu/experts.h"
#include "models/decoding/cpu/team_barrier.h"
#include "models/decoding/network/layer.h"

namespace quintet::decoding {
namespace {

/// The matrices of a step in the order in which it reads them, so that the first bytes of the next are
/// fetched while one is multiplied with.
struct ReadOrder {
  struct Read {
    const PackedMatrix* matrix;
    int64_t unit;  // panels that stay together
  };
  std::vector<Read> reads;

  explicit ReadOrder(const PackedNetwork& network) {
    run_layers(*this, network.decoder());
    add_product(network.logits());
    reads.push_back(reads.front());
  }
  void project(size_t, const PackedAttention& attention) { add_product(attention.in); }
  void attend_self(size_t, const PackedAttention&) {}
  void attend_cross(size_t) {}
  void add_product(const PackedMatrix& matrix) { reads.push_back({&matrix, 1}); }
  void add_mlp(const std::vector<float>&, const PackedMlp& mlp) {
    reads.push_back({&mlp.in, mlp.unit()});
    add_product(mlp.out);
  }
  void add_mlp(const std::vector<float>&, const PackedExperts&) {}
  void begin_parallel(const std::vector<float>&) {}
  void end_parallel() {}
};

/// What the threads of a step share.
struct StepRun {
  const PackedNetwork& network;
  const DecoderStep& step;
  const LayerConfig& sizes;
  const int64_t rows, joined, qkv_width;  // of this rank's heads
  const int64_t attended_width, hidden_width, vocab;
  const ReadOrder order;
  SharedActivations activations;
  float *x, *attended, *hidden;
  float* shared_logits;  // null: a rank alone
  std::vector<float> qkv;
  const PlacedHeads placed;
  /// Slots of a row's past that follow one another.
  struct SlotRun {
    const float* begin;
    int64_t bytes;
  };
  std::vector<SlotRun> slot_runs;
  std::vector<size_t> first_run;  // of each row, and the end

  StepRun(const PackedNetwork& packed, const DecoderStep& decoder_step)
      : network(packed),
        step(decoder_step),
        sizes(network.spec().decoder.layer),
        rows(static_cast<int64_t>(step.rows.size())),
        joined(sizes.joined_kv()),
        qkv_width(joined + 2 * sizes.kv_width()),
        attended_width(network.all_joined_kv()),
        hidden_width(hidden_width_of(network.spec())),
        vocab(network.spec().vocab_size),
        order(network),
        activations(network.ranks(), rows * (sizes.emb_dim + attended_width + hidden_width +
                                             (network.ranks() == nullptr ? 0 : vocab))),
        x(activations.take(rows * sizes.emb_dim)),
        attended(activations.take(rows * attended_width)),
        hidden(activations.take(rows * hidden_width)),
        shared_logits(network.ranks() == nullptr ? nullptr : activations.take(rows * vocab)),
        qkv(static_cast<size_t>(rows * qkv_width)),
        placed(sizes, rows, [this](int64_t r) { return row(r).position; }) {
    for (int64_t r = 0; r < rows; ++r)
      network.embed(network.decoder(), row(r).token, x + r * sizes.emb_dim);
    find_slot_runs();
    if (network.ranks() != nullptr) network.ranks()->wait();
  }
  static int64_t hidden_width_of(const ModelSpec& spec) {
    const MoeConfig& moe = spec.decoder.sparse.moe;
    return std::max(spec.decoder.layer.mlp_dim, moe.router.num_selected_experts * moe.mlp_dim);
  }
  const StepRow& row(int64_t r) const { return step.rows[static_cast<size_t>(r)]; }
  std::span<const SlotRun> past_of(int64_t r) const {
    const auto at = first_run.begin() + r;
    return std::span(slot_runs).subspan(at[0], at[1] - at[0]);
  }

 private:
  void find_slot_runs() {
    const int64_t floats = cached_floats(sizes.head_dim, step.layout.type),
                  bytes = floats * static_cast<int64_t>(sizeof(float));
    for (const StepRow& of_row : step.rows) {
      first_run.push_back(slot_runs.size());
      const float* end = nullptr;
      for (const float* slot : of_row.past) {
        if (slot == end)
          slot_runs.back().bytes += bytes;
        else
          slot_runs.push_back({slot, bytes});
        end = slot + floats;
      }
    }
    first_run.push_back(slot_runs.size());
  }
};

/// A thread's part of a layer over a step's rows (layer.h): of every product its share of the columns
/// and, but for experts, what others are late with, of all rows. Each phase ends where a part needs what others made; of a
/// network that several ranks hold, their threads are one team, whose ranks exchange whole rows through the
/// shared activations.
class StepBackend {
 public:
  StepBackend(StepRun& run, Part part, TeamBarrier& barrier, SharedPanels& shared)
      : run_(run), part_(part), barrier_(barrier), shared_(shared) {
    fetch_cached(0);
  }

  void project(size_t, const PackedAttention& attention) {
    const PackedRows& rows = normalized(attention.norm);
    const int64_t width = attention.in.n();
    multiply(
        rows, attention.in, panels(attention.in),
        [&](const Tile& tile) { store_tile(tile, run_.qkv.data(), width); }, next(), &later_);
    barrier_.wait();
  }

  void attend_self(size_t layer, const PackedAttention&) {
    if (appends_first()) {
      const int64_t kv_heads = run_.sizes.kv_heads(), kept = run_.rows * kv_heads;
      for (int64_t u = part_.begin(kept); u < part_.end(kept); ++u)
        append(layer, u % kv_heads, u / kv_heads);
      barrier_.wait();
    }
    each_self([&](int64_t head, int64_t r) { attend_row(layer, head, r); });
    if (!has_cross()) fetch_cached(layer + 1);
    barrier_.wait_for_ranks();
  }

  void attend_cross(size_t layer) {
    const int64_t d = run_.sizes.head_dim;
    each_cross(layer, [&](const StepGroup& group, int64_t head, const SharedKeys& keys) {
      queries_.clear();
      for (int64_t r = group.begin; r < group.end; ++r)
        queries_.push_back({.query = run_.qkv.data() + r * run_.joined + head * d,
                            .out = attended(r, head),
                            .limit = keys.length,
                            .bias = nullptr});
      attend_shared(queries_, keys, d, scratch_);
    });
    fetch_cached(layer + 1);
    barrier_.wait_for_ranks();
  }

  void add_product(const PackedMatrix& w) { add_product(run_.attended, run_.attended_width, w); }

  void add_mlp(const std::vector<float>& norm, const PackedMlp& mlp) {
    mlp_activations(normalized(norm), mlp, panels(mlp.in, mlp.unit()), run_.hidden, next(),
                    &later_);
    barrier_.wait_for_ranks();
    add_product(run_.hidden, mlp.width, mlp.out);
  }
  /// Every part routes all rows: that is little, and they agree without waiting.
  void add_mlp(const std::vector<float>& norm, const PackedExperts& experts) {
    routed_rows_.resize(static_cast<size_t>(run_.rows * run_.sizes.emb_dim));
    normalized(norm).unpack(routed_rows_.data());
    const ExpertRows routed = route_rows(experts, routed_rows_.data(), run_.rows);
    ExpertProducts::in(experts, routed, routed_rows_.data(), part_, packed_, run_.hidden);
    barrier_.wait_for_ranks();
    ExpertProducts::out(experts, routed, run_.hidden, part_, packed_, own_columns_of_x());
    barrier_.wait_for_ranks();
  }

  /// Every part packs all rows; none adds to any before the waiting of attend_self.
  void begin_parallel(const std::vector<float>& norm) {
    pack_normalized(parallel_, norm);
    is_parallel_ = true;
  }
  void end_parallel() { is_parallel_ = false; }

  /// logits: [rows, vocab]
  void write_logits(float* logits) {
    const PackedMatrix& w = run_.network.logits();
    const PackedRows& rows = normalized(run_.network.decoder().norm);
    float* to = run_.shared_logits != nullptr ? run_.shared_logits : logits;
    multiply(
        rows, w, panels(w),
        [&, first = to + run_.network.columns(run_.vocab).begin,
         scale = run_.network.logit_scale()](const Tile& tile) {
          scale_tile(tile, first, run_.vocab, scale);
        },
        next());
    if (run_.shared_logits != nullptr) copy_logits(logits);
  }

 private:
  bool has_cross() const { return run_.step.groups.front().cross != nullptr; }
  /// Calls use(head, row) for this part's units of self-attention, ordered by group, head, row, so that rows of one item
  /// share what they read.
  template <class Use>
  void each_self(const Use& use) const {
    const int64_t heads = run_.sizes.num_heads, units = run_.rows * heads;
    const int64_t begin = part_.begin(units), end = part_.end(units);
    for (const StepGroup& group : run_.step.groups) {
      const int64_t count = group.end - group.begin;
      for (int64_t u = std::max(begin, group.begin * heads); u < std::min(end, group.end * heads);
           ++u) {
        const int64_t within = u - group.begin * heads;
        use(within / count, group.begin + within % count);
      }
    }
  }
  /// Calls use(group, head, keys) for those of cross-attention.
  template <class Use>
  void each_cross(size_t layer, const Use& use) const {
    const int64_t heads = run_.sizes.num_heads;
    const auto units = static_cast<int64_t>(run_.step.groups.size()) * heads;
    for (int64_t u = part_.begin(units); u < part_.end(units); ++u) {
      const StepGroup& group = run_.step.groups[static_cast<size_t>(u / heads)];
      const int64_t head = u % heads;
      use(group, head,
          group.cross[static_cast<int64_t>(layer) * group.cross_layer +
                      run_.sizes.kv_head_of(head)]);
    }
  }
  /// Lets the products that follow fetch the keys and values that a layer's attention reads: caches are larger than what
  /// is left of the processor's beside the weights. Those of self-attention, which comes first, are fetched last: fewer of
  /// them have left the second-level cache by then.
  void fetch_cached(size_t layer) {
    later_.clear();
    if (layer == run_.network.decoder().layers.size()) return;
    const int64_t d = run_.sizes.head_dim;
    if (has_cross())
      each_cross(layer, [&](const StepGroup&, int64_t, const SharedKeys& keys) {
        if (later_.full()) return;
        later_.add(keys.memory(), SharedKeys::floats(keys.length, d, keys.type) *
                                      static_cast<int64_t>(sizeof(float)));
      });
    each_self([&](int64_t head, int64_t r) {
      if (later_.full()) return;
      const CachedHead at =
          run_.step.layout.at(static_cast<int64_t>(layer), run_.sizes.kv_head_of(head));
      for (const int64_t part : {at.keys, at.values})
        for (const auto& [begin, bytes] : run_.past_of(r)) later_.add(begin + part, bytes);
    });
  }
  /// From all ranks, before the next step writes there.
  void copy_logits(float* logits) {
    barrier_.wait_for_ranks();
    const int64_t count = run_.rows * run_.vocab, begin = part_.begin(count);
    std::copy(run_.shared_logits + begin, run_.shared_logits + part_.end(count), logits + begin);
    barrier_.wait_for_ranks();
  }
  /// Where the result of one of this rank's heads goes.
  float* attended(int64_t r, int64_t head) const {
    return run_.attended + r * run_.attended_width + run_.network.head_columns().begin +
           head * run_.sizes.head_dim;
  }
  float* own_columns_of_x() const {
    return run_.x + run_.network.columns(run_.sizes.emb_dim).begin;
  }
  void pack_normalized(PackedRows& packed, const std::vector<float>& norm) const {
    packed.pack_normalized(run_.x, run_.rows, run_.sizes.emb_dim, norm.data(), kNormEpsilon);
  }
  const PackedRows& normalized(const std::vector<float>& norm) {
    if (is_parallel_) return parallel_;
    pack_normalized(packed_, norm);
    return packed_;
  }
  PanelRange share(const PackedMatrix& m, int64_t unit = 1) const {
    return m.share(part_.index, part_.count, unit);
  }
  PanelSource panels(const PackedMatrix& m, int64_t unit = 1) {
    return {shared_, part_.index, share(m, unit), unit};
  }
  /// What this part reads first of the matrix after the one that is multiplied with.
  NextPanels next() {
    const auto& [matrix, unit] = run_.order.reads[++read_];
    return matrix->first_panels(share(*matrix, unit), run_.rows);
  }

  /// x += input [rows, k] w
  void add_product(const float* input, int64_t k, const PackedMatrix& w) {
    packed_.pack(input, run_.rows, k);
    multiply(
        packed_, w, panels(w),
        [&, e = run_.sizes.emb_dim, x = own_columns_of_x()](const Tile& tile) {
          add_tile(tile, x, e);
        },
        next(), &later_);
    barrier_.wait_for_ranks();
  }

  /// Where what one part appends others attend to.
  bool appends_first() const { return run_.sizes.shares_kv() || run_.step.has_drafts; }
  /// A head's new key and value, to the cache.
  void append(size_t layer, int64_t kv_head, int64_t r) {
    const int64_t d = run_.sizes.head_dim;
    float* key = run_.qkv.data() + r * run_.qkv_width + run_.joined + kv_head * d;
    run_.placed.place(r, key, 1);
    if (run_.row(r).slot != nullptr)
      append_to_cache(run_.step.layout.at(static_cast<int64_t>(layer), kv_head), run_.row(r).slot,
                      key, key + run_.sizes.kv_width(), d);
  }
  void attend_row(size_t layer, int64_t head, int64_t r) {
    const StepRow& row = run_.row(r);
    const int64_t kv_head = run_.sizes.kv_head_of(head), d = run_.sizes.head_dim;
    if (!appends_first()) append(layer, kv_head, r);
    float* query = run_.qkv.data() + r * run_.qkv_width + head * d;
    run_.placed.place(r, query, 1);
    attend_cache(query, attended(r, head),
                 run_.step.layout.at(static_cast<int64_t>(layer), kv_head), row.past,
                 row.slot != nullptr ? run_.step.bias->row(layer, head, row.position) : nullptr, d,
                 scratch_);
  }

  StepRun& run_;
  const Part part_;
  TeamBarrier& barrier_;
  SharedPanels& shared_;          // of the product that the team makes
  size_t read_ = 0;               // in the order
  FetchQueue later_;              // what the next layer's attention reads
  PackedRows packed_, parallel_;  // parallel_: what all parts of a parallel layer read
  bool is_parallel_ = false;
  std::vector<float> scratch_, routed_rows_;
  std::vector<SharedQuery> queries_;
};

}  // namespace

void run_step(const PackedNetwork& network, const DecoderStep& step, float* logits) {
  StepRun run(network, step);
  std::optional<TeamBarrier> barrier;
  std::optional<SharedPanels> shared;
#pragma omp parallel
  {
#pragma omp single
    {
      barrier.emplace(omp_get_num_threads(), network.ranks());
      shared.emplace(omp_get_num_threads());
    }
    StepBackend backend(run, {omp_get_thread_num(), omp_get_num_threads()}, *barrier, *shared);
    run_layers(backend, network.decoder());
    backend.write_logits(logits);
  }
}

}  // namespace quintet::decoding
