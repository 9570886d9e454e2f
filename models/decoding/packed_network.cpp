#include "models/decoding/packed_network.h"

#include <algorithm>
#include <cstring>

#include "models/decoding/quantized_parameters.h"

namespace quintet::decoding {
namespace {

/// Reads parameters below one scope and checks their sizes.
class Reader {
 public:
  Reader(const ParameterSource& source, const ModelSpec& spec, HugeArena& arena, WeightType type)
      : source_(source), spec_(spec), arena_(arena), type_(type) {}

  /// Float32, or what is packed as `type` as it is.
  StoredMatrix read(const std::string& name, int64_t rows, int64_t columns,
                    WeightType type = WeightType::f32) const {
    const StoredParameter stored = source_(name);
    const View& view = stored.values;
    // Kernels may come as [embed, heads, kv]: the order of elements is the same.
    QT_CHECK_AS(ExitCode::kData,
                view.elements() == rows * columns &&
                    (view.dtype == DType::f32 || view.dtype == stored_dtype(type)),
                "parameter {}: expected {} x {} values of {}, found {} of {}; does the "
                "configuration belong to this checkpoint?",
                name, rows, columns, name_of(stored_dtype(type)), view.elements(),
                name_of(view.dtype));
    return {view.pointer, view.dtype, stored.scales};
  }
  std::vector<float> vector(const std::string& name, int64_t size) const {
    const auto* p = static_cast<const float*>(read(name, 1, size).values);
    return std::vector<float>(p, p + size);
  }
  PackedMatrix matrix(const std::string& name, int64_t k, int64_t n) const {
    return PackedMatrix::pack(read(name, k, n, type_), k, n, arena_, type_);
  }
  /// Projections of one input, side by side.
  PackedMatrix joined(const std::string& scope, std::initializer_list<const char*> parts) const {
    const int64_t width = layer_.joined_kv();
    PackedMatrix packed(layer_.emb_dim, width * static_cast<int64_t>(parts.size()), arena_, type_);
    int64_t first = 0;
    for (const char* part : parts) {
      const std::string name = scope + "/" + part + "/kernel";
      StoredMatrix weights = read(name, layer_.emb_dim, width, type_);
      std::vector<float> scaled;
      if (const auto by = factor_of(spec_, name); by && weights.dtype == DType::f32) {
        const auto* w = static_cast<const float*>(weights.values);
        scaled.assign(w, w + layer_.emb_dim * width);
        for (float& x : scaled) x /= *by;
        weights = scaled.data();
      }
      packed.set_columns(first, weights, width, width);
      first += width;
    }
    return packed;
  }
  /// The MLP below a scope, or, of several stacked there, number `expert`.
  PackedMlp mlp(const std::string& scope, int64_t f, const std::vector<std::string>& activations,
                int64_t experts = 1, int64_t expert = 0) const {
    const int64_t e = layer_.emb_dim;
    const auto kernel = [&](const std::string& name, int64_t rows, int64_t columns,
                            WeightType type) {
      return read(fmt::format("{}/{}/kernel", scope, name), experts * rows, columns, type)
          .from(expert * rows * columns, expert * columns);
    };
    PackedMlp mlp;
    mlp.width = f;
    for (const std::string& name : activations)
      mlp.activations.push_back(activation_from_name(name));
    if (activations.size() == 2) {
      const int64_t width = panel_width(), pairs = (f + width - 1) / width;
      mlp.in = PackedMatrix(e, pairs * 2 * width, arena_, type_);
      for (int64_t gate = 0; gate < 2; ++gate) {
        const StoredMatrix w = kernel(fmt::format("wi_{}", gate), e, f, type_);
        for (int64_t pair = 0; pair < pairs; ++pair)
          mlp.in.set_columns((2 * pair + gate) * width, w.from(pair * width, pair * width),
                             std::min(width, f - pair * width), f);
      }
    } else {
      mlp.in = PackedMatrix::pack(kernel("wi", e, f, type_), e, f, arena_, type_);
    }
    const WeightType high = high_precision(type_);
    mlp.out = PackedMatrix::pack(kernel("wo", f, e, high), f, e, arena_, high);
    return mlp;
  }
  PackedExperts experts(const std::string& scope, const MoeConfig& moe) const {
    PackedExperts packed;
    packed.router =
        vector(scope + "/router/router_weights/w/kernel", layer_.emb_dim * moe.num_experts);
    packed.chosen = moe.router.num_selected_experts;
    for (int64_t i = 0; i < moe.num_experts; ++i)
      packed.experts.push_back(
          mlp(scope + "/expert", moe.mlp_dim, moe.activations, moe.num_experts, i));
    return packed;
  }
  void add_mlps(PackedLayer& layer, const std::string& scope, const SparseStack* sparse) const {
    if (sparse == nullptr) {
      layer.mlp = mlp(scope + "/mlp", layer_.mlp_dim, layer_.mlp_activations);
    } else {
      layer.experts = experts(scope + "/mlp", sparse->moe);
    }
    layer.mlp.norm = vector(scope + "/pre_mlp_layer_norm/scale", layer_.emb_dim);
    if (sparse == nullptr || !sparse->extra_mlp) return;
    layer.extra_mlp = mlp(scope + "/extra_mlp", layer_.mlp_dim, layer_.mlp_activations);
    layer.extra_mlp->norm = vector(scope + "/pre_extra_mlp_layer_norm/scale", layer_.emb_dim);
  }
  PackedLayer layer(const StackSpec& stack, int64_t index) const {
    const std::string scope = stack.layer_scope(index);
    const std::string attention = stack.is_encoder ? "/attention" : "/self_attention";
    const std::string norm =
        stack.is_encoder ? "/pre_attention_layer_norm" : "/pre_self_attention_layer_norm";
    const int64_t embed = stack.layer.emb_dim, joined_kv = stack.layer.joined_kv();
    PackedLayer layer;
    layer.self.norm = vector(scope + norm + "/scale", embed);
    layer.self.in = joined(scope + attention, {"query", "key", "value"});
    layer.self.out = matrix(scope + attention + "/out/kernel", joined_kv, embed);
    if (stack.cross_attention) {
      const std::string name = scope + "/encoder_decoder_attention";
      layer.cross.norm = vector(scope + "/pre_cross_attention_layer_norm/scale", embed);
      layer.cross.in = joined(name, {"query"});
      layer.cross.key_value = joined(name, {"key", "value"});
      layer.cross.out = matrix(name + "/out/kernel", joined_kv, embed);
    }
    add_mlps(layer, scope, stack.sparse_at(index));
    return layer;
  }
  PackedStack stack(const StackSpec& spec) const {
    const std::string scope = spec.scope(), table = scope + "/relpos_bias/rel_embedding";
    PackedStack stack;
    stack.norm = vector(fmt::format("{}/{}_norm/scale", scope, scope), spec.layer.emb_dim);
    stack.relative_bias = vector(table, spec.layer.num_heads * spec.layer.num_buckets);
    stack.buckets = {.bidirectional = spec.is_encoder,
                     .buckets = spec.layer.num_buckets,
                     .max_distance = spec.layer.max_distance};
    for (int64_t i = 0; i < spec.num_layers; ++i) stack.layers.push_back(layer(spec, i));
    return stack;
  }

 private:
  const ParameterSource& source_;
  const ModelSpec& spec_;
  const LayerConfig& layer_ = spec_.decoder.layer;  // an encoder's sizes are the same
  HugeArena& arena_;
  const WeightType type_;
};

/// Those that a layer has.
std::vector<const PackedMatrix*> matrices_of(const PackedLayer& layer) {
  std::vector<const PackedMatrix*> all;
  for (const PackedMatrix* m :
       {&layer.self.in, &layer.self.out, &layer.cross.in, &layer.cross.key_value, &layer.cross.out})
    all.push_back(m);
  const auto add = [&](const PackedMlp& mlp) {
    all.push_back(&mlp.in);
    all.push_back(&mlp.out);
  };
  add(layer.mlp);
  if (layer.extra_mlp) add(*layer.extra_mlp);
  if (layer.experts)
    for (const PackedMlp& expert : layer.experts->experts) add(expert);
  std::erase_if(all, [](const PackedMatrix* m) { return m->panels() == 0; });
  return all;
}

}  // namespace

PackedNetwork::PackedNetwork(ModelSpec spec, const ParameterSource& source, EncoderFunction encoder,
                             WeightType weights)
    : spec_(std::move(spec)), encode_(std::move(encoder)) {
  const LayerConfig& layer = spec_.decoder.layer;
  QT_CHECK(
      spec_.vocab_size > 0 && layer.emb_dim > 0 && layer.joined_kv() > 0 && layer.mlp_dim > 0 &&
          spec_.decoder.num_layers > 0,
      "generation: the network's sizes must be positive (vocab {}, emb {}, heads {} x {}, mlp {}, "
      "decoder layers {})",
      spec_.vocab_size, layer.emb_dim, layer.num_heads, layer.head_dim, layer.mlp_dim,
      spec_.decoder.num_layers);
  const size_t gates = layer.mlp_activations.size();
  QT_CHECK(gates == 1 || gates == 2, "generation: {} MLP activations; one or two are supported",
           gates);
  QT_CHECK(encode_ || !spec_.encoder_has_experts(),
           "generation: an encoder with experts needs a function that encodes");
  spec_.decoder.sparse.check_generates();
  HugeArena arena;
  const Reader reader(source, spec_, arena, weights);
  // The largest tensors first: while a source still holds them, little else is packed.
  const int64_t v = spec_.vocab_size, e = layer.emb_dim;
  const std::string embedding = spec_.embedding_name();
  if (spec_.logits_via_embedding) {
    logits_ =
        PackedMatrix::pack_transposed(reader.read(embedding, v, e, weights), v, e, arena, weights);
    logit_scale_ = 1.0f / std::sqrt(static_cast<float>(e));
  } else {
    const WeightType high = high_precision(weights);
    const StoredMatrix table = reader.read(embedding, v, e, high);
    embedding_dtype_ = stored_dtype(high);
    embedding_ = arena.allocate((v * e * size_of(embedding_dtype_) + 3) / 4);
    if (table.dtype == embedding_dtype_)
      std::memcpy(embedding_.get(), table.values,
                  static_cast<size_t>(v * e * size_of(embedding_dtype_)));
    else
      std::transform(
          static_cast<const float*>(table.values), static_cast<const float*>(table.values) + v * e,
          reinterpret_cast<bfloat16*>(embedding_.get()), [](float x) { return bfloat16(x); });
    logits_ = reader.matrix("decoder/logits_dense/kernel", e, v);
  }
  if (spec_.encoder && !encode_) encoder_ = reader.stack(*spec_.encoder);
  decoder_ = reader.stack(spec_.decoder);
}

void PackedNetwork::embed(int32_t token, float* out) const {
  QT_CHECK_AS(ExitCode::kData, token >= 0 && token < spec_.vocab_size,
              "generation: token {} lies outside the vocabulary of {}", token, spec_.vocab_size);
  const int64_t e = spec_.emb_dim();
  if (embedding_ != nullptr && embedding_dtype_ == DType::bf16) {
    const auto* row = reinterpret_cast<const bfloat16*>(embedding_.get()) + token * e;
    std::transform(row, row + e, out, [](bfloat16 x) { return static_cast<float>(x); });
    return;
  }
  if (embedding_ != nullptr) {
    std::copy_n(embedding_.get() + token * e, e, out);
    return;
  }
  logits_.column(token, out);
}

int64_t PackedNetwork::bytes() const {
  int64_t bytes = logits_.bytes();
  if (embedding_ != nullptr)
    bytes += size_of(embedding_dtype_) * spec_.vocab_size * spec_.emb_dim();
  for (const PackedStack* stack : {&encoder_, &decoder_})
    for (const PackedLayer& layer : stack->layers)
      for (const PackedMatrix* m : matrices_of(layer)) bytes += m->bytes();
  return bytes;
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
