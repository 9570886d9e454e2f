#include "models/decoding/transformer_decoder.h"

#include <omp.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "models/decoding/layer_parts.h"
#include "models/decoding/prefill.h"
#include "models/decoding/team_barrier.h"

namespace quintet::decoding {

struct TransformerDecoder::State {
  SelfCache cache;
  BiasStrips bias;
  Sequences encoder_input;
  std::vector<float> encoded;  // [encoder tokens, embed]
  std::shared_ptr<float> cross_memory;
  std::vector<SharedKeys> cross;  // [layers, items, heads]
};

namespace {

/// The step's rows that belong to one item.
struct ItemRows {
  int64_t item = 0, begin = 0, end = 0;
};

/// One step. Its phases are split over the parts of a team; each ends where a part needs what
/// others made.
class Step {
 public:
  Step(const PackedNetwork& network, const SelfCache& cache, const BiasStrips& bias,
       std::span<const SharedKeys> cross, int64_t batch, const StepInput& input)
      : network_(network),
        cache_(cache),
        bias_(bias),
        cross_(cross),
        batch_(batch),
        input_(input),
        shape_(network.shape()),
        rows_(static_cast<int64_t>(input.rows.size())),
        joined_(shape_.joined_kv()) {
    x_.resize(static_cast<size_t>(rows_ * shape_.emb_dim));
    for (int64_t r = 0; r < rows_; ++r)
      network.embed(input.tokens[static_cast<size_t>(r)], x_.data() + r * shape_.emb_dim);
    qkv_.resize(static_cast<size_t>(rows_ * 3 * joined_));
    attended_.resize(static_cast<size_t>(rows_ * joined_));
    hidden_.resize(static_cast<size_t>(rows_ * shape_.mlp_dim));
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t item = input.rows[static_cast<size_t>(r)] / cache.decodes();
      if (groups_.empty() || groups_.back().item != item) groups_.push_back({item, r, r});
      groups_.back().end = r + 1;
    }
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
                    first_panel(layer.mlp.in, part, network_.gated() ? 2 : 1));
        barrier.wait();
      }
      own.packed.pack_normalized(x_.data(), rows_, shape_.emb_dim, layer.mlp.norm.data(),
                                 kNormEpsilon);
      mlp_activations(own.packed, network_, layer.mlp, part, hidden_.data(),
                      first_panel(layer.mlp.out, part));
      barrier.wait();
      add_product(
          hidden_.data(), shape_.mlp_dim, layer.mlp.out, part, own,
          first_panel(l + 1 < layers.size() ? layers[l + 1].self.in : network_.logits(), part));
      barrier.wait();
    }
    const int64_t vocab = shape_.vocab_size;
    const float scale = network_.logit_scale();
    own.packed.pack_normalized(x_.data(), rows_, shape_.emb_dim, network_.decoder().norm.data(),
                               kNormEpsilon);
    multiply(
        own.packed, network_.logits(), network_.logits().share(part.index, part.count),
        [&](const Tile& tile) { scale_tile(tile, logits, vocab, scale); },
        first_panel(layers.front().self.in, part));
  }

 private:
  struct Own {  // a part's
    PackedRows packed;
    std::vector<float> scratch;
    std::vector<SharedQuery> queries;
  };

  /// Where the part's share of a matrix begins, to be fetched early; null if it has none.
  static const float* first_panel(const PackedMatrix& m, Part part, int64_t unit = 1) {
    const PanelRange share = m.share(part.index, part.count, unit);
    return share.begin < share.end ? m.panel(share.begin) : nullptr;
  }

  void project(const PackedAttention& attention, int64_t width, Part part, Own& own,
               const float* next) const {
    own.packed.pack_normalized(x_.data(), rows_, shape_.emb_dim, attention.norm.data(),
                               kNormEpsilon);
    multiply(
        own.packed, attention.in, attention.in.share(part.index, part.count),
        [&](const Tile& tile) { store_tile(tile, qkv_.data(), width); }, next);
  }

  void add_product(const float* input, int64_t k, const PackedMatrix& w, Part part, Own& own,
                   const float* next) const {
    own.packed.pack(input, rows_, k);
    multiply(
        own.packed, w, w.share(part.index, part.count),
        [&](const Tile& tile) { add_tile(tile, x_.data(), shape_.emb_dim); }, next);
  }

  /// Units are ordered by item, head, row, so that a part's rows of one item share what they read.
  void attend_self(int64_t layer, Part part, Own& own) const {
    const int64_t heads = shape_.num_heads, units = rows_ * heads;
    const int64_t begin = part.begin(units), end = part.end(units);
    for (const ItemRows& group : groups_) {
      const int64_t count = group.end - group.begin;
      for (int64_t u = std::max(begin, group.begin * heads); u < std::min(end, group.end * heads);
           ++u) {
        const int64_t within = u - group.begin * heads;
        attend_row(layer, group.item, within / count, group.begin + within % count, own);
      }
    }
  }

  void attend_row(int64_t layer, int64_t item, int64_t head, int64_t r, Own& own) const {
    const int64_t d = shape_.head_dim, position = input_.positions[static_cast<size_t>(r)];
    const int64_t row = input_.rows[static_cast<size_t>(r)];
    const CachedKeys keys = cache_.head(layer, item, head);
    const float* query = qkv_.data() + r * 3 * joined_ + head * d;
    const bool inside = position < cache_.max_length();
    if (inside)
      append_to_cache(keys, position, cache_.slot(row), query + joined_, query + 2 * joined_, d);
    attend_cache(query, attended_.data() + r * joined_ + head * d, keys,
                 cache_.slots_of(row, inside ? position + 1 : cache_.max_length()),
                 inside ? bias_.row(head, position) : nullptr, d, own.scratch);
  }

  void attend_cross(int64_t layer, Part part, Own& own) const {
    const int64_t heads = shape_.num_heads, d = shape_.head_dim;
    const auto units = static_cast<int64_t>(groups_.size()) * heads;
    for (int64_t u = part.begin(units); u < part.end(units); ++u) {
      const ItemRows& group = groups_[static_cast<size_t>(u / heads)];
      const int64_t head = u % heads;
      const SharedKeys& keys =
          cross_[static_cast<size_t>((layer * batch_ + group.item) * heads + head)];
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
  const SelfCache& cache_;
  const BiasStrips& bias_;
  const std::span<const SharedKeys> cross_;
  const int64_t batch_;
  const StepInput& input_;
  const NetworkShape& shape_;
  const int64_t rows_, joined_;
  mutable std::vector<float> x_, qkv_, attended_, hidden_;
  std::vector<ItemRows> groups_;
};

}  // namespace

TransformerDecoder::TransformerDecoder(const PackedNetwork& network)
    : network_(network), state_(std::make_unique<State>()) {}
TransformerDecoder::~TransformerDecoder() = default;

namespace {

Sequences without_padding(std::span<const int32_t> tokens, int64_t batch, int64_t length) {
  Sequences s;
  for (int64_t i = 0; i < batch; ++i) {
    for (int64_t t = 0; t < length; ++t)
      if (tokens[static_cast<size_t>(i * length + t)] > 0) {
        s.tokens.push_back(tokens[static_cast<size_t>(i * length + t)]);
        s.positions.push_back(static_cast<int32_t>(t));
      }
    if (static_cast<int64_t>(s.tokens.size()) == s.size()) {  // nothing but padding
      s.tokens.push_back(0);
      s.positions.push_back(0);
    }
    const auto end = static_cast<int64_t>(s.tokens.size());
    s.limits.resize(s.tokens.size(), end - s.size());
    s.begin.push_back(end);
  }
  return s;
}

/// Cross-attention's keys and values of all layers, from the encoder's output before its final
/// norm; the output is normalised on the way.
std::vector<SharedKeys> project_cross(const PackedNetwork& network, const Sequences& sequences,
                                      std::vector<float>& encoded, std::shared_ptr<float>& memory) {
  const NetworkShape& shape = network.shape();
  const auto& layers = network.decoder().layers;
  const int64_t heads = shape.num_heads, d = shape.head_dim, e = shape.emb_dim;
  const int64_t joined = shape.joined_kv(), items = sequences.items(), rows = sequences.size();
  std::vector<SharedKeys> keys;
  int64_t floats = 0;
  for (int64_t i = 0; i < items; ++i)
    floats += heads * SharedKeys::floats(sequences.begin[static_cast<size_t>(i + 1)] -
                                             sequences.begin[static_cast<size_t>(i)],
                                         d);
  memory = HugeArena().allocate(floats * static_cast<int64_t>(layers.size()));
  float* next = memory.get();
  std::vector<int64_t> item_of;
  for (size_t layer = 0; layer < layers.size(); ++layer)
    for (int64_t i = 0; i < items; ++i) {
      const int64_t length =
          sequences.begin[static_cast<size_t>(i + 1)] - sequences.begin[static_cast<size_t>(i)];
      if (layer == 0) item_of.insert(item_of.end(), static_cast<size_t>(length), i);
      for (int64_t h = 0; h < heads; ++h) {
        keys.push_back(SharedKeys::at(next, length, d));
        next += SharedKeys::floats(length, d);
      }
    }
#pragma omp parallel
  {
    PackedRows packed;
    std::vector<float> block;
    const Part part{omp_get_thread_num(), omp_get_num_threads()};
    const int64_t size = prefill_block_rows(rows, part.count), blocks = (rows + size - 1) / size;
    for (int64_t b = part.begin(blocks); b < part.end(blocks); ++b) {
      const int64_t first = b * size, count = std::min(size, rows - first);
      packed.pack_normalized(encoded.data() + first * e, count, e, network.encoder().norm.data(),
                             kNormEpsilon);
      packed.unpack(encoded.data() + first * e);
      block.resize(static_cast<size_t>(count * 2 * joined));
      for (size_t layer = 0; layer < layers.size(); ++layer) {
        const PackedMatrix& w = layers[layer].cross.key_value;
        multiply(packed, w, {0, w.panels()},
                 [&](const Tile& tile) { store_tile(tile, block.data(), 2 * joined); });
        for (int64_t r = 0; r < count; ++r) {
          const int64_t item = item_of[static_cast<size_t>(first + r)];
          const int64_t index = first + r - sequences.begin[static_cast<size_t>(item)];
          const float* row = block.data() + r * 2 * joined;
          for (int64_t h = 0; h < heads; ++h)
            keys[(layer * static_cast<size_t>(items) + static_cast<size_t>(item)) *
                     static_cast<size_t>(heads) +
                 static_cast<size_t>(h)]
                .set(index, row + h * d, row + joined + h * d, d);
        }
      }
    }
  }
  return keys;
}

}  // namespace

void TransformerDecoder::begin(std::span<const int32_t> tokens, int64_t batch, int64_t length,
                               const CacheOptions& options) {
  const NetworkShape& shape = network_.shape();
  QT_CHECK(!shape.decoder_only(), "generation: a decoder-only network has no encoder inputs");
  QT_CHECK(batch > 0 && length > 0,
           "generation: encoder inputs [batch={}, length={}] must not be empty", batch, length);
  QT_ASSERT(static_cast<int64_t>(tokens.size()) == batch * length);
  State& s = *state_;
  s.cache.start(shape, batch, options);
  s.bias = BiasStrips(network_.decoder(), shape.num_heads, options.max_length);
  s.encoder_input = without_padding(tokens, batch, length);
  s.encoded = run_stack(network_, network_.encoder(), s.encoder_input);
  s.cross = project_cross(network_, s.encoder_input, s.encoded, s.cross_memory);
  batch_ = batch;
}

void TransformerDecoder::begin_prefix(std::span<const int32_t> tokens, int64_t batch,
                                      int64_t length, std::span<const int32_t> prefix,
                                      bool bidirectional, const CacheOptions& options) {
  const NetworkShape& shape = network_.shape();
  QT_CHECK(shape.decoder_only(), "generation: a prefix needs a decoder-only network");
  QT_ASSERT(static_cast<int64_t>(tokens.size()) == batch * length);
  State& s = *state_;
  s.cache.start(shape, batch, options);
  s.bias = BiasStrips(network_.decoder(), shape.num_heads, options.max_length);
  s.encoder_input = {};
  s.encoded.clear();
  s.cross.clear();
  batch_ = batch;
  Sequences sequences;
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t n = prefix[static_cast<size_t>(i)];
    QT_CHECK(n <= options.max_length,
             "generation: a prefix of {} tokens exceeds the maximum length {}", n,
             options.max_length);
    for (int64_t t = 0; t < n; ++t) {
      sequences.tokens.push_back(tokens[static_cast<size_t>(i * length + t)]);
      sequences.positions.push_back(static_cast<int32_t>(t));
      sequences.limits.push_back(bidirectional ? n : t + 1);
    }
    sequences.begin.push_back(static_cast<int64_t>(sequences.tokens.size()));
  }
  run_stack(network_, network_.decoder(), sequences,
            [&](int64_t layer, int64_t item, int64_t index, const float* key, const float* value) {
              for (int64_t h = 0; h < shape.num_heads; ++h)
                append_to_cache(s.cache.head(layer, item, h), index, 0, key + h * shape.head_dim,
                                value + h * shape.head_dim, shape.head_dim);
            });
}

std::span<float> TransformerDecoder::step(const StepInput& input) {
  State& s = *state_;
  s.cache.follow(input);
  const auto rows = static_cast<int64_t>(input.rows.size());
  logits_.resize(static_cast<size_t>(rows * network_.shape().vocab_size));
  if (rows == 0) return logits_;
  const Step step(network_, s.cache, s.bias, s.cross, batch_, input);
  std::optional<TeamBarrier> barrier;
#pragma omp parallel
  {
#pragma omp single
    barrier.emplace(omp_get_num_threads());
    step.run({omp_get_thread_num(), omp_get_num_threads()}, *barrier, logits_.data());
  }
  return logits_;
}

std::span<const float> TransformerDecoder::encoded(int64_t item) const {
  const int64_t e = network_.shape().emb_dim;
  const auto& begin = state_->encoder_input.begin;
  const int64_t first = begin[static_cast<size_t>(item)],
                end = begin[static_cast<size_t>(item + 1)];
  return std::span(state_->encoded)
      .subspan(static_cast<size_t>(first * e), static_cast<size_t>((end - first) * e));
}

int64_t TransformerDecoder::cache_bytes() const { return state_->cache.bytes(); }

}  // namespace quintet::decoding
