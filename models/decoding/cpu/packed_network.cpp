#include "models/decoding/cpu/packed_network.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "models/decoding/network/place.h"
#include "models/decoding/network/quantized_parameters.h"

namespace quintet::decoding {
namespace {

/// Packs parameters and checks their sizes.
class Loader {
 public:
  using Form = PackedForm;
  Loader(const PackedNetwork& network, const ParameterSource& source, HugeArena& arena,
         WeightType type)
      : network_(network),
        source_(by_matrix(network.spec(), source)),
        spec_(network.spec()),
        arena_(arena),
        type_(type) {}

  /// Float32, or what is packed as `type` as it is.
  StoredMatrix read(const std::string& name, int64_t rows, int64_t columns,
                    WeightType type = WeightType::f32) const {
    return check(name, source_(name), rows, columns, type);
  }
  static StoredMatrix check(const std::string& name, const StoredParameter& stored, int64_t rows,
                            int64_t columns, WeightType type) {
    const View& view = stored.values;
    // Kernels may come as [embed, heads, kv]: the order of elements is the same.
    QT_CHECK_AS(ExitCode::kData,
                view.elements() == rows * columns &&
                    (view.dtype == DType::f32 || view.dtype == stored_dtype(type)),
                "parameter {}: expected {} x {} values of {}, found {} of {}; does the "
                "configuration belong to this checkpoint?",
                name, rows, columns, name_of(stored_dtype(type)), view.elements(),
                name_of(view.dtype));
    const auto [row_stride, column_stride] =
        stored.strides.value_or(std::array<int64_t, 2>{columns, 1});
    return {view.pointer, view.dtype, stored.scales, row_stride, column_stride};
  }
  /// Calls use(first, part, count) with some rows (axis 0) or columns (axis 1) of a matrix, `first` counted from the
  /// first of them: a few at a time, whole panels of them, if the source gives parts.
  template <typename Use>
  void in_parts(const std::string& name, int64_t rows, int64_t columns, int axis,
                const Columns& wanted, WeightType type, Use use) const {
    constexpr int64_t kElements = 4 << 20;  // of a part, about
    const int64_t across = axis == 0 ? columns : rows;
    if (!source_.has_parts()) {
      const StoredMatrix all = read(name, rows, columns, type);
      // The scales of rows are those of the transposed matrix's columns.
      const StoredMatrix own = axis == 1 ? all.from(0, wanted.begin)
                                         : all.transposed().from(0, wanted.begin).transposed();
      return use(0, own, wanted.count());
    }
    const int64_t width = panel_width(),
                  most = std::max<int64_t>(kElements / across / width, 1) * width;
    for (int64_t first = 0; first < wanted.count(); first += most) {
      const int64_t count = std::min(most, wanted.count() - first);
      const StoredParameter part = source_.part(name, {axis, wanted.begin + first, count});
      use(first, check(name, part, axis == 0 ? count : rows, axis == 0 ? columns : count, type),
          count);
    }
  }
  std::vector<float> vector(const std::string& name, int64_t size) const {
    const auto* p = static_cast<const float*>(read(name, 1, size).values);
    return std::vector<float>(p, p + size);
  }
  PackedMatrix matrix(const std::string& name, int64_t k, int64_t n) const {
    const Columns own = network_.columns(n);
    PackedMatrix packed(k, own.count(), arena_, type_);
    by_columns(name, kAlone, k, n, own, type_,
               [&](int64_t, int64_t first, const StoredMatrix& columns, int64_t count) {
                 packed.set_columns(first, columns, count);
               });
    return packed;
  }
  PackedMatrix projections(const std::string& scope, std::initializer_list<const char*> parts,
                           ReadBy) const {
    // Every rank has the one head whose keys and values all others share.
    const auto own = [&](const std::string& part) {
      return is_shared(layer_, part) ? Columns{0, layer_.head_dim} : network_.head_columns();
    };
    int64_t width = 0;
    for (const char* part : parts) width += own(part).count();
    PackedMatrix packed(layer_.emb_dim, width, arena_, type_);
    int64_t begin = 0;
    for (const char* part : parts) {
      by_columns(scope + "/" + part + "/kernel", kAlone, layer_.emb_dim,
                 is_shared(layer_, part) ? layer_.head_dim : network_.all_joined_kv(), own(part),
                 type_, [&](int64_t, int64_t first, const StoredMatrix& weights, int64_t count) {
                   packed.set_columns(begin + first, weights, count);
                 });
      begin += own(part).count();
    }
    return packed;
  }
  /// Whose values are float32, and then in `memory`.
  static StoredMatrix divided(const StoredMatrix& w, int64_t rows, int64_t columns, float by,
                              std::vector<float>& memory) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        memory.push_back(*static_cast<const float*>(w.from(i, j).values) / by);
    return StoredMatrix::row_major(memory.data(), columns);
  }
  PackedMlp mlp(const std::string& scope, int64_t f,
                const std::vector<std::string>& activations) const {
    return std::move(mlps(scope, kAlone, f, activations).front());
  }
  PackedExperts experts(const std::string& scope, const MoeConfig& moe) const {
    return {.router =
                vector(scope + "/router/router_weights/w/kernel", layer_.emb_dim * moe.num_experts),
            .router_bias = moe.router.use_bias
                               ? vector(scope + "/router/router_weights/w/bias", moe.num_experts)
                               : std::vector<float>(),
            .moe = moe,
            .experts = mlps(scope + "/expert", moe.num_experts, moe.mlp_dim, moe.activations)};
  }
  PackedForm::Bias relative_bias(const std::string& name, const StackSpec& stack) const {
    const LayerConfig& c = stack.layer;
    return std::make_shared<PackedBias>(
        PackedBias{.buckets = {.bidirectional = stack.is_encoder,
                               .buckets = c.num_buckets,
                               .max_distance = c.max_distance},
                   .table = heads_of(vector(name, c.num_heads * c.num_buckets), c)});
  }

 private:
  /// This rank's rows of a table [heads, buckets].
  std::vector<float> heads_of(std::vector<float> table, const LayerConfig& c) const {
    const Columns& own = network_.head_columns();
    const auto at = [&](int64_t column) {
      return table.begin() + column / c.head_dim * c.num_buckets;
    };
    return {at(own.begin), at(own.end)};
  }
  static constexpr int64_t kAlone = 0;  // one matrix, which is in no stack
  /// Calls use(matrix, first, part, count) with this rank's columns of one matrix, or of each of a stack: a few
  /// at a time, or a matrix at a time, if the source gives parts.
  template <typename Use>
  void by_columns(const std::string& name, int64_t matrices, int64_t k, int64_t n,
                  const Columns& own, WeightType type, Use use) const {
    const auto by = factor_of(spec_, name);
    const auto use_divided = [&](int64_t i, int64_t first, const StoredMatrix& part,
                                 int64_t count) {
      if (!by || part.dtype != DType::f32) return use(i, first, part, count);
      std::vector<float> scaled;
      use(i, first, divided(part, k, count, *by, scaled), count);
    };
    if (matrices == kAlone)
      return in_parts(name, k, n, 1, own, type,
                      [&](int64_t first, const StoredMatrix& part, int64_t count) {
                        use_divided(0, first, part, count);
                      });
    const auto use_one = [&](int64_t i, const StoredParameter& stored) {
      use_divided(i, 0, check(name, stored, k, n, type).from(0, own.begin), own.count());
    };
    if (source_.has_each()) return source_.each(name, use_one);
    std::optional<StoredMatrix> all;
    if (!source_.has_parts()) all = read(name, matrices * k, n, type);
    for (int64_t i = 0; i < matrices; ++i) {
      if (!all) {
        use_one(i, source_.part(name, {0, i, 1}));
        continue;
      }
      StoredMatrix one = all->from(i * k, 0);
      if (one.scales != nullptr) one.scales += i * n;
      use_divided(i, 0, one.from(0, own.begin), own.count());
    }
  }
  /// The MLP below a scope, or those stacked there.
  std::vector<PackedMlp> mlps(const std::string& scope, int64_t count, int64_t f,
                              const std::vector<std::string>& activations) const {
    const int64_t e = layer_.emb_dim, width = panel_width();
    const bool gated = activations.size() == 2;
    const Columns own = network_.columns(f);
    const int64_t o = own.count(), panels = (o + width - 1) / width;
    const WeightType high = high_precision(type_);
    std::vector<PackedMlp> mlps(static_cast<size_t>(std::max<int64_t>(count, 1)));
    for (PackedMlp& mlp : mlps) {
      mlp.width = f;
      mlp.columns = own;
      for (const std::string& name : activations)
        mlp.activations.push_back(activation_from_name(name));
      // A gate's panels lie between those of what it opens.
      mlp.in = PackedMatrix(e, gated ? panels * 2 * width : o, arena_, type_);
      mlp.out = PackedMatrix(f, network_.columns(e).count(), arena_, high);
    }
    const auto kernel = [&](const char* name) { return fmt::format("{}/{}/kernel", scope, name); };
    using Index = int64_t;
    for (int64_t gate = 0; gated && gate < 2; ++gate)
      by_columns(kernel(gate == 0 ? "wi_0" : "wi_1"), count, e, f, own, type_,
                 [&](Index i, Index first, const StoredMatrix& w, int64_t n) {
                   mlps[static_cast<size_t>(i)].in.set_columns(first, w, n, {gate, 2});
                 });
    if (!gated)
      by_columns(kernel("wi"), count, e, f, own, type_,
                 [&](Index i, Index first, const StoredMatrix& w, int64_t n) {
                   mlps[static_cast<size_t>(i)].in.set_columns(first, w, n);
                 });
    by_columns(kernel("wo"), count, f, e, network_.columns(e), high,
               [&](Index i, Index first, const StoredMatrix& w, int64_t n) {
                 mlps[static_cast<size_t>(i)].out.set_columns(first, w, n);
               });
    return mlps;
  }

  const PackedNetwork& network_;
  const ParameterSource source_;
  const ModelSpec& spec_;
  const LayerConfig& layer_ = spec_.decoder.layer;  // an encoder's sizes are the same
  HugeArena& arena_;
  const WeightType type_;
};

/// Those that a layer has.
std::vector<const PackedMatrix*> matrices_of(const PackedLayer& layer) {
  std::vector<const PackedMatrix*> all{&layer.self.in, &layer.self.out};
  if (layer.cross)
    all.insert(all.end(), {&layer.cross->in, &layer.cross->key_value, &layer.cross->out});
  const auto add = [&](const PackedMlp& mlp) { all.insert(all.end(), {&mlp.in, &mlp.out}); };
  for (const auto& [norm, mlp] : layer.feed_forward) {
    if (const auto* dense = std::get_if<PackedMlp>(&mlp)) add(*dense);
    if (const auto* sparse = std::get_if<PackedExperts>(&mlp))
      for (const PackedMlp& expert : sparse->experts) add(expert);
  }
  return all;
}

/// Of a network that ranks hold together.
void check_shares(const ModelSpec& spec, const Part& part) {
  QT_CHECK(part.count <= spec.decoder.layer.num_heads,
           "tensor parallel: {} ranks for {} attention heads; at most as many as heads are useful",
           part.count, spec.decoder.layer.num_heads);
}

}  // namespace

PackedNetwork::PackedNetwork(ModelSpec spec, const ParameterSource& source, WeightType weights,
                             SharedMemoryGroup* ranks)
    : spec_(std::move(spec)), ranks_(ranks) {
  refuse_own_network(spec_);
  LayerConfig& layer = spec_.decoder.layer;
  QT_CHECK(
      spec_.vocab_size > 0 && layer.emb_dim > 0 && layer.joined_kv() > 0 && layer.mlp_dim > 0 &&
          (spec_.decoder.num_layers > 0 || spec_.encoder_only()),
      "generation: the network's sizes must be positive (vocab {}, emb {}, heads {} x {}, mlp {}, "
      "decoder layers {})",
      spec_.vocab_size, layer.emb_dim, layer.num_heads, layer.head_dim, layer.mlp_dim,
      spec_.decoder.num_layers);
  const size_t gates = layer.mlp_activations.size();
  QT_CHECK(gates == 1 || gates == 2, "generation: {} MLP activations; one or two are supported",
           gates);
  const Part part = part_of_ranks();
  check_shares(spec_, part);
  all_joined_kv_ = layer.joined_kv();
  head_columns_ = {part.begin(layer.num_heads) * layer.head_dim,
                   part.end(layer.num_heads) * layer.head_dim};
  HugeArena arena;
  const Loader load(*this, source, arena, weights);
  // The largest tensors first: while a source still holds them, little else is packed.
  const int64_t v = spec_.vocab_size, e = layer.emb_dim;
  const Columns tokens = columns(v);
  const auto table_of = [&](const StackSpec& stack) {
    const WeightType high = high_precision(weights);
    TokenTable table{
        .rows = arena.allocate((tokens.count() * e * size_of(stored_dtype(high)) + 3) / 4),
        .dtype = stored_dtype(high)};
    load.in_parts(spec_.embedding_name(stack), v, e, 0, tokens, high,
                  [&](int64_t first, const StoredMatrix& rows, int64_t count) {
                    table.set_rows(first, rows, count, e);
                  });
    return table;
  };
  if (spec_.separate_embeddings) encoder_table_ = table_of(*spec_.encoder);
  if (spec_.logits_via_embedding) {
    logits_ = PackedMatrix(e, tokens.count(), arena, weights);
    load.in_parts(spec_.embedding_name(spec_.decoder), v, e, 0, tokens, weights,
                  [&](int64_t first, const StoredMatrix& rows, int64_t count) {
                    logits_.set_columns(first, rows.transposed(), count);
                  });
    logit_scale_ = 1.0f / std::sqrt(static_cast<float>(e));
  } else if (!spec_.encoder_only()) {
    decoder_table_ = table_of(spec_.decoder);
    logits_ = PackedMatrix(e, tokens.count(), arena, weights);
    load.in_parts("decoder/logits_dense/kernel", e, v, 1, tokens, weights,
                  [&](int64_t first, const StoredMatrix& columns, int64_t count) {
                    logits_.set_columns(first, columns, count);
                  });
  } else if (!spec_.separate_embeddings) {
    encoder_table_ = table_of(*spec_.encoder);
  }
  if (!spec_.separate_embeddings && !spec_.encoder_only()) encoder_table_ = decoder_table_;
  if (spec_.encoder) encoder_ = load_stack(load, *spec_.encoder);
  decoder_ = load_stack(load, spec_.decoder);
  layer.num_heads = head_columns_.count() / layer.head_dim;
  if (spec_.encoder) spec_.encoder->layer.num_heads = layer.num_heads;
}

Part PackedNetwork::part_of_ranks() const {
  return ranks_ == nullptr ? Part{} : Part{ranks_->rank(), ranks_->size()};
}

Columns PackedNetwork::columns(int64_t n) const {
  const int64_t width = panel_width(), panels = (n + width - 1) / width;
  const Part part = part_of_ranks();
  return {std::min(n, part.begin(panels) * width), std::min(n, part.end(panels) * width)};
}

void PackedNetwork::TokenTable::set_rows(int64_t first, const StoredMatrix& from, int64_t count,
                                         int64_t width) {
  QT_ASSERT(from.column_stride == 1 && from.row_stride == width);
  const int64_t row_bytes = width * size_of(dtype);
  auto* to = reinterpret_cast<std::byte*>(rows.get()) + first * row_bytes;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < count; ++i) {
    std::byte* out = to + i * row_bytes;
    const void* values = from.from(i, 0).values;
    if (from.dtype == dtype)
      std::memcpy(out, values, static_cast<size_t>(row_bytes));
    else
      std::transform(static_cast<const float*>(values), static_cast<const float*>(values) + width,
                     reinterpret_cast<bfloat16*>(out), [](float x) { return bfloat16(x); });
  }
}

void PackedNetwork::TokenTable::row(int32_t token, int64_t width, float* out) const {
  if (dtype == DType::f32) {
    std::copy_n(rows.get() + token * width, width, out);
    return;
  }
  const auto* values = reinterpret_cast<const bfloat16*>(rows.get()) + token * width;
  std::transform(values, values + width, out, [](bfloat16 x) { return static_cast<float>(x); });
}

void PackedNetwork::embed(const PackedStack& stack, int32_t token, float* out) const {
  QT_CHECK_AS(ExitCode::kData, token >= 0 && token < spec_.vocab_size,
              "generation: token {} lies outside the vocabulary of {}", token, spec_.vocab_size);
  const TokenTable& table = &stack == &encoder_ ? encoder_table_ : decoder_table_;
  const Columns own = columns(spec_.vocab_size);
  if (!own.contains(token)) return;
  if (table.rows != nullptr)
    table.row(static_cast<int32_t>(token - own.begin), spec_.emb_dim(), out);
  else
    logits_.column(token - own.begin, out);
}

int64_t PackedNetwork::bytes() const {
  int64_t bytes = logits_.bytes();
  std::set<const float*> counted{nullptr};
  for (const TokenTable* table : {&encoder_table_, &decoder_table_})
    if (counted.insert(table->rows.get()).second)
      bytes += size_of(table->dtype) * columns(spec_.vocab_size).count() * spec_.emb_dim();
  for (const PackedStack* stack : {&encoder_, &decoder_})
    for (const PackedLayer& layer : stack->layers)
      for (const PackedMatrix* m : matrices_of(layer)) bytes += m->bytes();
  return bytes;
}

PackedNetwork::StepWork PackedNetwork::step_work(int64_t rows) const {
  StepWork work;
  const auto read = [&](const PackedMatrix& w) {
    work.matrices.push_back(&w);
    work.bytes += w.bytes();
  };
  const auto add = [&](const PackedMatrix& w) {
    read(w);
    work.multiply_adds[w.type()] += w.k() * w.n() * rows;
  };
  for (const PackedLayer& layer : decoder_.layers) {
    add(layer.self.in);
    add(layer.self.out);
    if (layer.cross) add(layer.cross->in);
    if (layer.cross) add(layer.cross->out);
    for (const auto& [norm, mlp] : layer.feed_forward) {
      const auto* dense = std::get_if<PackedMlp>(&mlp);
      const auto* sparse = std::get_if<PackedExperts>(&mlp);
      if (dense == nullptr && sparse == nullptr) continue;
      const PackedMlp& one = sparse == nullptr ? *dense : sparse->experts.front();
      add(one.in);
      add(one.out);
      const int64_t others =
          sparse == nullptr ? 0 : std::min(rows, std::ssize(sparse->experts)) - 1;
      for (int64_t i = 1; i <= others; ++i) {
        read(sparse->experts[static_cast<size_t>(i)].in);
        read(sparse->experts[static_cast<size_t>(i)].out);
      }
    }
  }
  add(logits_);
  return work;
}

std::vector<std::string> PackedNetwork::parts() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < encoder_.layers.size(); ++i)
    names.push_back(fmt::format("encoder/layers_{}", i));
  for (size_t i = 0; i < decoder_.layers.size(); ++i)
    names.push_back(fmt::format("decoder/layers_{}", i));
  names.push_back("logits");
  return names;
}

PackedLayer* PackedNetwork::find(const std::string& part) {
  if (part == "logits") return nullptr;
  PackedStack& stack = part.starts_with("encoder") ? encoder_ : decoder_;
  return &stack.layers.at(std::stoul(part.substr(part.find('_') + 1)));
}

std::vector<PackedMatrix> PackedNetwork::matrices(const std::string& part) const {
  PackedNetwork copy = *this;
  const PackedLayer* layer = copy.find(part);
  if (layer == nullptr) return {logits_};
  std::vector<PackedMatrix> all;
  for (const PackedMatrix* m : matrices_of(*layer)) all.push_back(*m);
  return all;
}

PackedNetwork PackedNetwork::with_part(const PackedNetwork& other, const std::string& part) const {
  PackedNetwork copy = *this;
  PackedNetwork from = other;
  if (PackedLayer* layer = copy.find(part))
    *layer = *from.find(part);
  else
    copy.logits_ = other.logits_;
  return copy;
}

}  // namespace quintet::decoding
