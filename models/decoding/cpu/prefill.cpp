#include "models/decoding/cpu/prefill.h"

#include <omp.h>

#include <algorithm>
#include <exception>

#include "models/decoding/cpu/experts.h"
#include "models/decoding/network/layer.h"

namespace quintet::decoding {

BiasDiagonals::BiasDiagonals(const PackedStack& stack, int64_t length) : length_(length) {
  const PackedBias* last = nullptr;
  for (const PackedLayer& layer : stack.layers) {
    if (layer.self.relative_bias == nullptr) return;
    const PackedBias& bias = *layer.self.relative_bias;
    if (&bias != last) {
      first_.push_back(std::ssize(data_));
      const std::vector<int32_t> buckets = bias.buckets.diagonals(1 - length, 2 * length - 1);
      for (auto row = bias.table.begin(); row < bias.table.end(); row += bias.buckets.buckets)
        for (const int32_t bucket : buckets) data_.push_back(row[bucket]);
    } else {
      first_.push_back(first_.back());
    }
    last = &bias;
  }
}

int64_t prefill_block_rows(int64_t rows, int64_t threads) {
  constexpr int64_t kMost = 168;  // x 1024 floats: a third of a 2 MB second-level cache
  const int64_t share = (rows + threads - 1) / threads;
  const int64_t blocks = (share + kMost - 1) / kMost;
  return std::max<int64_t>(1, (share + blocks - 1) / blocks);
}

namespace {

/// What the threads of a run share.
struct StackRun {
  const PackedStack& stack;
  const Sequences& sequences;
  const KeyValueSink& sink;
  const EncodedKeys& encoded;
  std::vector<LayerRouting>* const routings;
  const LayerConfig& sizes;
  SharedMemoryGroup* const ranks;
  const int64_t rows, heads, joined;  // heads, joined: this rank's
  const int64_t query_width;          // of all ranks
  BiasDiagonals bias;
  const PlacedHeads placed;
  SharedActivations activations;
  float *x, *queries;  // [rows, embed]; [rows, query_width], where attention's results go too
  float* hidden;       // [rows, mlp] or [chosen rows, mlp of experts] of ranks that share it
  float* threads;      // [ranks]
  int64_t block;       // rows; the same on all ranks, which lay chosen rows out by blocks
  Columns head_columns, embed_columns;
  std::shared_ptr<float> memory;
  std::vector<SharedKeys> keys;   // [items, kv heads]
  std::vector<float> normalized;  // [rows, embed], where others than a block's products read it
  ExpertRows routed;
  std::exception_ptr error;  // of the threads

  StackRun(const PackedNetwork& network, const PackedStack& layers, const Sequences& s,
           const KeyValueSink& key_value_sink, const EncodedKeys& encoded_keys,
           std::vector<LayerRouting>* layer_routings)
      : stack(layers),
        sequences(s),
        sink(key_value_sink),
        encoded(encoded_keys),
        routings(layer_routings),
        sizes(network.spec().decoder.layer),
        ranks(network.ranks()),
        rows(s.size()),
        heads(sizes.num_heads),
        joined(sizes.joined_kv()),
        query_width(network.all_joined_kv()),
        bias(stack, 1 + *std::max_element(s.positions.begin(), s.positions.end())),
        placed(sizes, rows, [&s](int64_t r) { return s.positions[static_cast<size_t>(r)]; }),
        activations(ranks, rows * (sizes.emb_dim + query_width) + shared_hidden() + num_ranks()),
        x(activations.take(rows * sizes.emb_dim)),
        queries(activations.take(rows * query_width)),
        hidden(activations.take(shared_hidden())),
        threads(activations.take(num_ranks())),
        head_columns(network.head_columns()),
        embed_columns(network.columns(sizes.emb_dim)) {
    for (int64_t r = 0; r < rows; ++r)
      network.embed(stack, sequences.tokens[static_cast<size_t>(r)], x + r * sizes.emb_dim);
    threads[ranks == nullptr ? 0 : ranks->rank()] = static_cast<float>(omp_get_max_threads());
    if (ranks != nullptr) ranks->wait();
    block = prefill_block_rows(
        rows, static_cast<int64_t>(*std::max_element(threads, threads + num_ranks())));
    lay_out_keys();
    if (reads_normalized()) normalized.resize(static_cast<size_t>(rows * sizes.emb_dim));
  }

  int64_t num_ranks() const { return ranks == nullptr ? 1 : ranks->size(); }
  /// Floats.
  int64_t shared_hidden() const {
    if (ranks == nullptr) return 0;
    int64_t most = rows * sizes.mlp_dim;
    for (const PackedLayer& layer : stack.layers)
      for (const auto& [norm, mlp] : layer.feed_forward)
        if (const auto* experts = std::get_if<PackedExperts>(&mlp))
          most = std::max(most, most_chosen(experts->moe, sequences) * experts->moe.mlp_dim);
    return most;
  }
  /// One thread does, the others wait.
  void route(const PackedExperts& experts) {
    try {
      routed = route_sequences(experts, normalized.data(), sequences, routings);
    } catch (...) {
      error = std::current_exception();
      routed = {.begin = std::vector<int64_t>(experts.experts.size() + 1), .row = {}, .gate = {}};
    }
  }
  void lay_out_keys() {
    int64_t floats = 0;
    for (int64_t i = 0; i < sequences.items(); ++i)
      floats += sizes.kv_heads() * SharedKeys::floats(length(i), sizes.head_dim);
    memory = HugeArena().allocate(floats);
    float* next = memory.get();
    for (int64_t i = 0; i < sequences.items(); ++i)
      for (int64_t h = 0; h < sizes.kv_heads(); ++h) {
        keys.push_back(SharedKeys::at(next, length(i), sizes.head_dim));
        next += SharedKeys::floats(length(i), sizes.head_dim);
      }
  }
  int64_t length(int64_t item) const { return sequences.length(item); }
  /// Parallel layers do, and experts that route whole sequences.
  bool reads_normalized() const {
    return std::ranges::any_of(stack.layers, [&](const PackedLayer& layer) {
      return layer.parallel || std::ranges::any_of(layer.feed_forward, [&](const auto& each) {
               const auto* experts = std::get_if<PackedExperts>(&each.mlp);
               return experts != nullptr && routes_together(experts->moe);
             });
    });
  }
  /// Whether a token's experts depend on other tokens.
  bool routes_together(const MoeConfig& moe) const {
    return moe.routes_sequences() || sequences.whole_batch;
  }
  /// Which tokens from this one on are masked; null: none.
  const uint8_t* masked(int64_t first) const {
    return sequences.masked.empty() ? nullptr : sequences.masked.data() + first;
  }
  int64_t item_of(int64_t row) const {
    return std::upper_bound(sequences.begin.begin(), sequences.begin.end(), row) -
           sequences.begin.begin() - 1;
  }
};

/// A thread's share of a layer over whole sequences (layer.h): products of its own rows, block by block,
/// and attention of its own heads. Of a network that several ranks hold, each computes its columns of all rows.
class SequenceBackend {
 public:
  SequenceBackend(StackRun& run, Part part) : run_(run), part_(part) {}

  void project(size_t layer, const PackedAttention& attention) {
    const int64_t joined = run_.joined, width = attention.in.n();  // of cross-attention: queries
    for_blocks_of_thread([&](int64_t first, int64_t count) {
      pack_normalized(first, count, attention.norm);
      block_.resize(static_cast<size_t>(count * width));
      multiply(packed_, attention.in, {0, attention.in.panels()},
               [&](const Tile& tile) { store_tile(tile, block_.data(), width); });
      for (int64_t r = 0; r < count; ++r) {
        float* row = block_.data() + r * width;
        if (width > joined)  // queries and keys, which lie behind each other
          run_.placed.place(first + r, row, run_.heads + run_.sizes.kv_heads());
        std::copy_n(row, joined, query(first + r));
        if (width > joined)
          keep(layer, first + r, row + joined, row + joined + run_.sizes.kv_width());
      }
    });
#pragma omp barrier
  }

  /// Outputs replace the queries.
  void attend_self(size_t layer, const PackedAttention&) {
    const int64_t units = run_.sequences.items() * run_.heads;
    for (int64_t u = part_.begin(units); u < part_.end(units); ++u)
      attend(layer, u / run_.heads, u % run_.heads);
#pragma omp barrier
    meet_ranks();
  }
  void attend_cross(size_t layer) {
    const int64_t items = run_.sequences.items(), units = items * run_.heads;
    for (int64_t u = part_.begin(units); u < part_.end(units); ++u) {
      const int64_t item = u / run_.heads, head = u % run_.heads;
      const SharedKeys& keys = run_.encoded.keys[static_cast<size_t>(
          (static_cast<int64_t>(layer) * items + item) * run_.sizes.kv_heads() +
          run_.sizes.kv_head_of(head))];
      const int64_t limit = run_.encoded.limits[static_cast<size_t>(item)];
      queries_.clear();
      for (int64_t i = 0; i < run_.length(item); ++i)
        ask(run_.sequences.begin[static_cast<size_t>(item)] + i, head, limit, nullptr, keys.length,
            limit == 0);
      attend_shared(queries_, keys, run_.sizes.head_dim, scratch_);
    }
#pragma omp barrier
    meet_ranks();
  }

  void add_product(const PackedMatrix& w) {
    for_blocks_of_thread([&](int64_t first, int64_t count) {
      packed_.pack(run_.queries + first * run_.query_width, count, run_.query_width);
      add_packed(w, first);
    });
    meet_ranks();
  }

  void add_mlp(const std::vector<float>& norm, const PackedMlp& mlp) {
    if (run_.ranks != nullptr) return add_mlp_of_ranks(norm, mlp);
    for_blocks_of_thread([&](int64_t first, int64_t count) {
      pack_normalized(first, count, norm);
      block_.resize(static_cast<size_t>(count * mlp.width));
      mlp_activations(packed_, mlp, PanelSource({0, mlp.in.panels()}), block_.data());
      packed_.pack(block_.data(), count, mlp.width);
      add_packed(mlp.out, first);
    });
  }
  void add_mlp(const std::vector<float>& norm, const PackedExperts& experts) {
    const bool together = run_.routes_together(experts.moe);
    if (together) route_together(norm, experts);
    std::vector<ExpertRows> routed;  // of this thread's blocks
    for_blocks_of_thread([&](int64_t first, int64_t count) {
      if (!together) {
        normalized_.resize(static_cast<size_t>(count * run_.sizes.emb_dim));
        normalize(first, count, norm, normalized_.data());
      }
      const float* rows = together ? normalized(first) : normalized_.data();
      routed.push_back(together ? part_of(run_.routed, first, count)
                                : route_rows(experts, rows, count));
      block_.resize(run_.ranks == nullptr
                        ? routed.back().row.size() * static_cast<size_t>(experts.moe.mlp_dim)
                        : 0);
      ExpertProducts::in(experts, routed.back(), rows, Part{}, packed_,
                         expert_hidden(experts.moe, first));
      if (run_.ranks == nullptr) add_experts(experts, routed.back(), first);
    });
    if (run_.ranks == nullptr) return;
    meet_ranks();
    auto next = routed.begin();
    for_blocks_of_thread([&](int64_t first, int64_t) { add_experts(experts, *next++, first); });
    meet_ranks();
  }

  /// Reads padding as it is. Whole rows are there, and stay so until all ranks have attended.
  void begin_parallel(const std::vector<float>& norm) {
    for_blocks_of_thread([&](int64_t first, int64_t count) {
      packed_.pack_normalized(x(first), count, run_.sizes.emb_dim, norm.data(), kNormEpsilon);
      packed_.unpack(normalized(first));
    });
    is_parallel_ = true;
  }
  void end_parallel() { is_parallel_ = false; }

 private:
  /// Between the two products ranks exchange whole rows.
  void add_mlp_of_ranks(const std::vector<float>& norm, const PackedMlp& mlp) {
    const auto hidden = [&](int64_t row) { return run_.hidden + row * mlp.width; };
    for_blocks_of_thread([&](int64_t first, int64_t count) {
      pack_normalized(first, count, norm);
      mlp_activations(packed_, mlp, PanelSource({0, mlp.in.panels()}), hidden(first));
    });
    meet_ranks();
    for_blocks_of_thread([&](int64_t first, int64_t count) {
      packed_.pack(hidden(first), count, mlp.width);
      add_packed(mlp.out, first);
    });
    meet_ranks();
  }
  /// Waits for all threads of all ranks, if there are several.
  void meet_ranks() const {
    if (run_.ranks == nullptr) return;
#pragma omp barrier
    if (part_.index == 0) run_.ranks->wait();
#pragma omp barrier
  }
  /// Every row is normalized before any is routed.
  void route_together(const std::vector<float>& norm, const PackedExperts& experts) {
    if (!is_parallel_)  // else they are
      for_blocks_of_thread(
          [&](int64_t first, int64_t count) { normalize(first, count, norm, normalized(first)); });
#pragma omp barrier
    if (part_.index == 0) run_.route(experts);
#pragma omp barrier
  }
  void pack_normalized(int64_t first, int64_t count, const std::vector<float>& norm) {
    if (is_parallel_) return packed_.pack(normalized(first), count, run_.sizes.emb_dim);
    packed_.pack_normalized(x(first), count, run_.sizes.emb_dim, norm.data(), kNormEpsilon,
                            run_.masked(first));
  }
  void normalize(int64_t first, int64_t count, const std::vector<float>& norm, float* out) {
    pack_normalized(first, count, norm);
    packed_.unpack(out);
  }
  /// What experts make of a block's rows: this thread's, or behind that of the blocks before.
  float* expert_hidden(const MoeConfig& moe, int64_t first) {
    if (run_.ranks == nullptr) return block_.data();
    const int64_t before =
        run_.routes_together(moe)
            ? std::ranges::count_if(run_.routed.row, [&](int64_t row) { return row < first; })
            : first * moe.router.num_selected_experts;
    return run_.hidden + before * moe.mlp_dim;
  }
  /// x += gates times the experts of the rows from `first` on.
  void add_experts(const PackedExperts& experts, const ExpertRows& routed, int64_t first) {
    ExpertProducts::out(experts, routed, expert_hidden(experts.moe, first), Part{}, packed_,
                        x(first) + run_.embed_columns.begin);
  }
  float* normalized(int64_t row) { return run_.normalized.data() + row * run_.sizes.emb_dim; }
  float* x(int64_t row) { return run_.x + row * run_.sizes.emb_dim; }
  /// Of this rank's heads.
  float* query(int64_t row) {
    return run_.queries + row * run_.query_width + run_.head_columns.begin;
  }

  template <class Body>
  void for_blocks_of_thread(const Body& body) const {
    const int64_t blocks = (run_.rows + run_.block - 1) / run_.block;
    for (int64_t b = part_.begin(blocks); b < part_.end(blocks); ++b)
      body(b * run_.block, std::min(run_.block, run_.rows - b * run_.block));
  }

  void keep(size_t layer, int64_t row, const float* key, const float* value) {
    const int64_t item = run_.item_of(row), d = run_.sizes.head_dim;
    const int64_t index = row - run_.sequences.begin[static_cast<size_t>(item)];
    for (int64_t h = 0; h < run_.sizes.kv_heads(); ++h)
      run_.keys[static_cast<size_t>(item * run_.sizes.kv_heads() + h)].set(index, key + h * d,
                                                                           value + h * d, d);
    if (run_.sink) run_.sink(static_cast<int64_t>(layer), item, index, key, value);
  }

  void attend(size_t layer, int64_t item, int64_t head) {
    const int64_t n = run_.length(item), d = run_.sizes.head_dim;
    const int64_t first = run_.sequences.begin[static_cast<size_t>(item)];
    const int32_t* positions = run_.sequences.positions.data() + first;
    const bool contiguous = positions[n - 1] == n - 1 && std::is_sorted(positions, positions + n);
    const bool gathers = !contiguous && run_.bias.row(layer, head, 0) != nullptr;
    if (gathers) bias_.resize(static_cast<size_t>(n * n));
    queries_.clear();
    for (int64_t i = 0; i < n; ++i) {
      const float* bias = run_.bias.row(layer, head, positions[i]);
      if (gathers) {
        for (int64_t k = 0; k < n; ++k) bias_[static_cast<size_t>(i * n + k)] = bias[positions[k]];
        bias = bias_.data() + i * n;
      }
      ask(first + i, head, run_.sequences.limits[static_cast<size_t>(first + i)], bias, n, false);
    }
    const int64_t kv_head = item * run_.sizes.kv_heads() + run_.sizes.kv_head_of(head);
    attend_shared(queries_, run_.keys[static_cast<size_t>(kv_head)], d, scratch_);
  }

  /// What a token asks of its keys; of those to which masks allow none, all `keys` alike.
  void ask(int64_t token, int64_t head, int64_t limit, const float* bias, int64_t keys,
           bool masked) {
    float* q = query(token) + head * run_.sizes.head_dim;
    masked = masked || run_.sequences.is_uniform(token);
    if (masked) std::fill_n(q, run_.sizes.head_dim, 0.0F);
    queries_.push_back(
        {.query = q, .out = q, .limit = masked ? keys : limit, .bias = masked ? nullptr : bias});
  }

  /// x += the packed rows w
  void add_packed(const PackedMatrix& w, int64_t first) {
    multiply(packed_, w, {0, w.panels()},
             [&, to = x(first) + run_.embed_columns.begin](const Tile& tile) {
               add_tile(tile, to, run_.sizes.emb_dim);
             });
  }

  StackRun& run_;
  const Part part_;
  bool is_parallel_ = false;
  PackedRows packed_;
  std::vector<float> block_, scratch_, bias_, normalized_;
  std::vector<SharedQuery> queries_;
};

}  // namespace

std::vector<float> run_stack(const PackedNetwork& network, const PackedStack& stack,
                             const Sequences& sequences, const KeyValueSink& sink,
                             const EncodedKeys& encoded_keys, std::vector<LayerRouting>* routings) {
  if (sequences.size() == 0) return {};
  StackRun run(network, stack, sequences, sink, encoded_keys, routings);
#pragma omp parallel
  {
    SequenceBackend backend(run, {omp_get_thread_num(), omp_get_num_threads()});
    run_layers(backend, stack);
  }
  if (run.error != nullptr) std::rethrow_exception(run.error);
  std::vector<float> encoded(run.x, run.x + run.rows * run.sizes.emb_dim);
  if (const uint8_t* masked = run.masked(0))
    for (int64_t row = 0; row < run.rows; ++row)
      if (masked[row] != 0)
        std::fill_n(encoded.data() + row * run.sizes.emb_dim, run.sizes.emb_dim, 0.0F);
  if (run.ranks != nullptr) run.ranks->wait();  // before another pass writes there
  return encoded;
}

}  // namespace quintet::decoding
