#include "models/decoding/prefill.h"

#include <omp.h>

#include <algorithm>

#include "kernels/attention/buckets.h"
#include "kernels/decode_attention/decode_attention.h"
#include "models/decoding/experts.h"

namespace quintet::decoding {

BiasStrips::BiasStrips(const PackedStack& stack, int64_t heads, int64_t length) : length_(length) {
  const BucketRule rule{.bidirectional = stack.bidirectional,
                        .buckets = stack.buckets,
                        .max_distance = stack.max_distance};
  const std::vector<int32_t> buckets = rule.diagonals(1 - length, 2 * length - 1);
  data_.reserve(static_cast<size_t>(heads) * buckets.size());
  for (int64_t h = 0; h < heads; ++h)
    for (int32_t bucket : buckets)
      data_.push_back(stack.relative_bias[static_cast<size_t>(h * stack.buckets + bucket)]);
}

int64_t prefill_block_rows(int64_t rows, int64_t threads) {
  constexpr int64_t kMost = 168;  // x 1024 floats: a third of a 2 MB second-level cache
  const int64_t share = (rows + threads - 1) / threads;
  const int64_t blocks = (share + kMost - 1) / kMost;
  return std::max<int64_t>(1, (share + blocks - 1) / blocks);
}

namespace {

class StackRun {
 public:
  StackRun(const PackedNetwork& network, const PackedStack& stack, const Sequences& sequences,
           const KeyValueSink& sink)
      : network_(network),
        stack_(stack),
        sequences_(sequences),
        sink_(sink),
        shape_(network.shape()),
        rows_(sequences.size()),
        heads_(shape_.num_heads),
        joined_(shape_.joined_kv()) {
    const int32_t last = *std::max_element(sequences.positions.begin(), sequences.positions.end());
    bias_ = BiasStrips(stack, heads_, last + 1);
    block_ = prefill_block_rows(rows_, omp_get_max_threads());
    x_.resize(static_cast<size_t>(rows_ * shape_.emb_dim));
    for (int64_t r = 0; r < rows_; ++r)
      network.embed(sequences.tokens[static_cast<size_t>(r)], x(r));
    query_.resize(static_cast<size_t>(rows_ * joined_));
    lay_out_keys();
  }

  std::vector<float> run() {
#pragma omp parallel
    {
      const Part part{omp_get_thread_num(), omp_get_num_threads()};
      Own own;
      for (size_t layer = 0; layer < stack_.layers.size(); ++layer) {
        project(static_cast<int64_t>(layer), part, own);
#pragma omp barrier
        attend(part, own);
#pragma omp barrier
        finish(stack_.layers[layer], part, own);
      }
    }
    return std::move(x_);
  }

 private:
  struct Own {  // a thread's
    PackedRows packed;
    std::vector<float> block, scratch, bias, normalized;
    std::vector<SharedQuery> queries;
  };

  float* x(int64_t row) { return x_.data() + row * shape_.emb_dim; }
  float* query(int64_t row) { return query_.data() + row * joined_; }

  void lay_out_keys() {
    int64_t floats = 0;
    for (int64_t i = 0; i < sequences_.items(); ++i)
      floats += heads_ * SharedKeys::floats(length(i), shape_.head_dim);
    memory_ = HugeArena().allocate(floats);
    float* next = memory_.get();
    for (int64_t i = 0; i < sequences_.items(); ++i)
      for (int64_t h = 0; h < heads_; ++h) {
        keys_.push_back(SharedKeys::at(next, length(i), shape_.head_dim));
        next += SharedKeys::floats(length(i), shape_.head_dim);
      }
  }
  int64_t length(int64_t item) const {
    return sequences_.begin[static_cast<size_t>(item + 1)] -
           sequences_.begin[static_cast<size_t>(item)];
  }
  int64_t item_of(int64_t row) const {
    return std::upper_bound(sequences_.begin.begin(), sequences_.begin.end(), row) -
           sequences_.begin.begin() - 1;
  }

  template <class Body>
  void own_blocks(Part part, const Body& body) const {
    const int64_t blocks = (rows_ + block_ - 1) / block_;
    for (int64_t b = part.begin(blocks); b < part.end(blocks); ++b)
      body(b * block_, std::min(block_, rows_ - b * block_));
  }

  /// Queries, keys and values of this part's rows.
  void project(int64_t layer, Part part, Own& own) {
    const PackedAttention& attention = stack_.layers[static_cast<size_t>(layer)].self;
    own_blocks(part, [&](int64_t first, int64_t count) {
      own.packed.pack_normalized(x(first), count, shape_.emb_dim, attention.norm.data(),
                                 kNormEpsilon);
      own.block.resize(static_cast<size_t>(count * 3 * joined_));
      multiply(own.packed, attention.in, {0, attention.in.panels()},
               [&](const Tile& tile) { store_tile(tile, own.block.data(), 3 * joined_); });
      for (int64_t r = 0; r < count; ++r) {
        const float* row = own.block.data() + r * 3 * joined_;
        std::copy_n(row, joined_, query(first + r));
        keep(layer, first + r, row + joined_, row + 2 * joined_);
      }
    });
  }

  void keep(int64_t layer, int64_t row, const float* key, const float* value) {
    const int64_t item = item_of(row), index = row - sequences_.begin[static_cast<size_t>(item)];
    for (int64_t h = 0; h < heads_; ++h)
      keys_[static_cast<size_t>(item * heads_ + h)].set(
          index, key + h * shape_.head_dim, value + h * shape_.head_dim, shape_.head_dim);
    if (sink_) sink_(layer, item, index, key, value);
  }

  /// Attention of this part's heads; outputs replace the queries.
  void attend(Part part, Own& own) {
    const int64_t units = sequences_.items() * heads_;
    for (int64_t u = part.begin(units); u < part.end(units); ++u) {
      const int64_t item = u / heads_, head = u % heads_, n = length(item);
      const int64_t first = sequences_.begin[static_cast<size_t>(item)];
      const int32_t* positions = sequences_.positions.data() + first;
      const bool contiguous = positions[n - 1] == n - 1;
      if (!contiguous) own.bias.resize(static_cast<size_t>(n * n));
      own.queries.clear();
      for (int64_t i = 0; i < n; ++i) {
        const float* bias = bias_.row(head, positions[i]);
        if (!contiguous) {
          for (int64_t k = 0; k < n; ++k)
            own.bias[static_cast<size_t>(i * n + k)] = bias[positions[k]];
          bias = own.bias.data() + i * n;
        }
        float* q = query(first + i) + head * shape_.head_dim;
        own.queries.push_back({.query = q,
                               .out = q,
                               .limit = sequences_.limits[static_cast<size_t>(first + i)],
                               .bias = bias});
      }
      attend_shared(own.queries, keys_[static_cast<size_t>(u)], shape_.head_dim, own.scratch);
    }
  }

  /// Output projection and MLP of this part's rows.
  void finish(const PackedLayer& layer, Part part, Own& own) {
    own_blocks(part, [&](int64_t first, int64_t count) {
      own.packed.pack(query(first), count, joined_);
      add_product(layer.self.out, first, own);
      if (layer.experts)
        add_experts(layer, first, count, own);
      else
        add_mlp(layer.mlp, first, count, own);
      if (layer.extra_mlp) add_mlp(*layer.extra_mlp, first, count, own);
    });
  }
  void add_product(const PackedMatrix& w, int64_t first, Own& own) {
    multiply(own.packed, w, {0, w.panels()},
             [&](const Tile& tile) { add_tile(tile, x(first), shape_.emb_dim); });
  }
  void add_mlp(const PackedMlp& mlp, int64_t first, int64_t count, Own& own) {
    own.packed.pack_normalized(x(first), count, shape_.emb_dim, mlp.norm.data(), kNormEpsilon);
    own.block.resize(static_cast<size_t>(count * mlp.width));
    mlp_activations(own.packed, mlp, Part{}, own.block.data());
    own.packed.pack(own.block.data(), count, mlp.width);
    add_product(mlp.out, first, own);
  }
  void add_experts(const PackedLayer& layer, int64_t first, int64_t count, Own& own) {
    const PackedExperts& experts = *layer.experts;
    own.packed.pack_normalized(x(first), count, shape_.emb_dim, layer.mlp.norm.data(),
                               kNormEpsilon);
    own.normalized.resize(static_cast<size_t>(count * shape_.emb_dim));
    own.packed.unpack(own.normalized.data());
    const ExpertRows routed = route_rows(experts, own.normalized.data(), count);
    own.block.resize(routed.row.size() * static_cast<size_t>(experts.experts.front().width));
    ExpertProducts::in(experts, routed, own.normalized.data(), Part{}, own.packed,
                       own.block.data());
    ExpertProducts::out(experts, routed, own.block.data(), Part{}, own.packed, x(first));
  }

  const PackedNetwork& network_;
  const PackedStack& stack_;
  const Sequences& sequences_;
  const KeyValueSink& sink_;
  const NetworkShape& shape_;
  const int64_t rows_, heads_, joined_;
  int64_t block_ = 0;
  BiasStrips bias_;
  std::vector<float> x_, query_;
  std::shared_ptr<float> memory_;
  std::vector<SharedKeys> keys_;  // [items, heads]
};

}  // namespace

std::vector<float> run_stack(const PackedNetwork& network, const PackedStack& stack,
                             const Sequences& sequences, const KeyValueSink& sink) {
  if (sequences.size() == 0) return {};
  return StackRun(network, stack, sequences, sink).run();
}

}  // namespace quintet::decoding
