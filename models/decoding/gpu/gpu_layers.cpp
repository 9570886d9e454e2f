#include "models/decoding/gpu/gpu_layers.h"

#include "models/decoding/gpu/gpu_products.h"
#include "models/decoding/network/layer.h"

namespace quintet::decoding {
namespace {

/// A layer over a step's rows (layer.h).
struct StepBackend {
  const LayerConfig& sizes;
  const Products products;
  const StepAttention& attention;
  const Tensor& attended;
  DecodeRows rows;
  const Tensor positions;  // of rotary networks
  Tensor x, qkv;           // [rows, embed]; [rows, joined_kv], in self-attention all side by side
  Tensor parallel{};       // of a parallel layer: the rows as all of its parts read them

  void begin_parallel(const Tensor&) {
    parallel = Tensor(x.spec());
    Device::current().copy(parallel.raw(), x.raw(), x.bytes());
  }
  void end_parallel() { parallel = {}; }
  const Tensor& input() const { return parallel.absent() ? x : parallel; }
  void project(size_t, const GpuAttention& weights) {
    qkv = products.normed(input(), weights.norm, weights.in.joined);
    rows.query = at(qkv, 0);
    rows.query_stride = qkv.size(1);
  }
  void attend_self(size_t i, const GpuAttention& weights) {
    const int64_t joined = attended.size(1);
    qkv = placed(sizes, qkv, positions, sizes.kv_heads());
    rows.query = at(qkv, 0);
    attention.self(i, rows, at(qkv, joined), at(qkv, joined + sizes.kv_width()),
                   weights.relative_bias.by_distance);
  }
  void attend_cross(size_t i) { attention.cross(i, rows); }
  void add_product(const GpuMatrix& matrix) { x = products.added(x, attended, matrix); }
  void add_mlp(const Tensor& norm, const GpuForm::Mlp& mlp) {
    x = products.added(x, products.activated(input(), norm, mlp), mlp.wo);
  }
  void add_mlp(const Tensor& norm, const GpuForm::Experts& experts) {
    x = products.with_experts(x, input(), norm, experts);
  }
};

Tensor positions_of(const LayerConfig& sizes, const Tensor& x, const int32_t* positions) {
  if (!sizes.rotary_max_timescale) return {};
  QT_ASSERT(positions != nullptr);
  const Tensor copy(Spec{{x.spec().axes[0]}, DType::i32});
  Device::current().copy(copy.raw(), positions, copy.bytes());
  return copy;
}

}  // namespace

Tensor placed(const LayerConfig& sizes, const Tensor& heads, const Tensor& positions,
              int64_t others) {
  if (!sizes.rotary_max_timescale) return heads;
  const int64_t all = heads.size(-1) / sizes.head_dim;
  return ops::rotate(heads, all,
                     {.max_timescale = *sizes.rotary_max_timescale,
                      .positions = positions,
                      .turned = all - others});
}

Tensor queue_layers(const GpuWeights& weights, Tensor x, DecodeRows rows, const Tensor& attended,
                    const StepAttention& attention) {
  rows.dtype = weights.dtype();
  rows.heads = weights.layer().num_heads;
  rows.head_dim = weights.layer().head_dim;
  rows.out = at(attended, 0);
  rows.out_stride = weights.joined_kv();
  StepBackend backend{.sizes = weights.layer(),
                      .products = Products(x.size(0), weights),
                      .attention = attention,
                      .attended = attended,
                      .rows = rows,
                      .positions = positions_of(weights.layer(), x, attention.positions),
                      .x = std::move(x),
                      .qkv = {}};
  run_layers(backend, weights.decoder);
  return backend.x;
}

}  // namespace quintet::decoding
