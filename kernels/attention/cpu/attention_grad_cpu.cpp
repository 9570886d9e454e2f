#include <array>

#include "kernels/attention/attention.h"
#include "kernels/attention/cpu/heads.h"
#include "kernels/attention/cpu/problem.h"
#include "kernels/cpu/addend.h"
#include "kernels/cpu/operands.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/cpu/attention_grad_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/attention/cpu/softmax-inl.h"
#include "kernels/attention/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {

using attention::AllowedKeys;
using attention::Gradients;
using attention::Problem;

int64_t gradient_floats(const Problem& p) {
  const int64_t tile = std::min(p.queries, kQueryTile), width = round_up(p.depth, vector_floats());
  const int64_t scores = tile * tile_stride(p.keys);
  return Arena::floats({Panels::floats(p.depth, p.keys), Panels::floats(p.depth, p.keys),
                        Panels::floats(p.keys, p.depth), Panels::floats(tile, p.depth),
                        Panels::floats(tile, p.depth), scores, scores, tile * width, p.keys * width,
                        p.keys * width, tile, p.queries + p.keys + attention::kDiagonalsPadding});
}

/// Weights of attention and their gradients become gradients of scores:
///   weights = exp(weights + bias - lse)   (if kRecompute: they come as scores)
///   dweights = weights * (dweights * keep - delta);  dhead_diagonals += dweights
/// over `live`; keep and dhead_diagonals may be null. One pass, as each of the rows is read from cache.
template <bool kRecompute>
inline void score_gradients(float* HWY_RESTRICT weights, float* HWY_RESTRICT dweights,
                            const float* HWY_RESTRICT bias, float lse, float delta,
                            const float* HWY_RESTRICT keep, float* HWY_RESTRICT dhead_diagonals,
                            Range live) {
  const F d;
  const auto shift = hn::Set(d, lse), deltas = hn::Set(d, delta);
  for (int64_t j = live.begin; j < live.end; j += vector_floats()) {
    auto p = hn::LoadU(d, weights + j);
    if constexpr (kRecompute) {
      p = exponential(d, hn::Sub(hn::Add(p, hn::LoadU(d, bias + j)), shift));
      hn::StoreU(p, d, weights + j);
    }
    auto g = hn::LoadU(d, dweights + j);
    if (keep != nullptr) g = hn::Mul(g, hn::LoadU(d, keep + j));
    g = hn::Mul(p, hn::Sub(g, deltas));
    hn::StoreU(g, d, dweights + j);
    if (dhead_diagonals != nullptr)
      hn::StoreU(hn::Add(hn::LoadU(d, dhead_diagonals + j), g), d, dhead_diagonals + j);
  }
}

/// Gradients of one head of one sequence: weights are recomputed from lse, tile by tile.
class GradientHead {
 public:
  GradientHead(const Problem& p, int64_t b, int64_t head, float* memory)
      : p_(p), b_(b), head_(head), arena_{memory} {
    const int64_t tile = std::min(p.queries, kQueryTile);
    const float* k = p.head_rows(p.k, p.keys, b, head);
    const int64_t panels = Panels::floats(p.depth, p.keys);
    keys_t_ = {arena_.take(panels), p.depth, p.keys};
    values_t_ = {arena_.take(panels), p.depth, p.keys};
    keys_ = {arena_.take(Panels::floats(p.keys, p.depth)), p.keys, p.depth};
    pack_transposed(k, p.row_stride(), p.scale, keys_t_);
    pack_transposed(p.head_rows(p.v, p.keys, b, head), p.row_stride(), 1.0F, values_t_);
    pack(k, p.row_stride(), nullptr, keys_);
    queries_ = arena_.take(Panels::floats(tile, p.depth));
    douts_ = arena_.take(Panels::floats(tile, p.depth));
    stride_ = tile_stride(p.keys);
    weights_ = arena_.take(tile * stride_);
    dscores_ = arena_.take(tile * stride_);
    width_ = keys_.width();
    dq_ = arena_.take(tile * width_);
    dk_ = arena_.take(p.keys * width_);
    dv_ = arena_.take(p.keys * width_);
    delta_ = arena_.take(tile);
    std::fill_n(dk_, p.keys * width_, 0.0F);
    std::fill_n(dv_, p.keys * width_, 0.0F);
  }

  void run(const Gradients& g) {
    const int64_t head_diagonals = p_.queries + p_.keys;
    dhead_diagonals_ = g.dbias_diagonals == nullptr
                           ? nullptr
                           : arena_.take(head_diagonals + attention::kDiagonalsPadding);
    if (dhead_diagonals_ != nullptr)
      std::fill_n(dhead_diagonals_, head_diagonals + attention::kDiagonalsPadding, 0.0F);
    const int64_t tiles = (p_.queries + kQueryTile - 1) / kQueryTile;
    for (int64_t t = 0; t < tiles; ++t)
      differentiate({p_.queries * t / tiles, p_.queries * (t + 1) / tiles}, g);
    const float* keep = p_.keep_row(b_, head_);
    for (int64_t j = 0; j < p_.keys; ++j) {
      scale_to(dk_ + j * width_, p_.scale, p_.depth, p_.head_rows(g.dk, p_.keys, b_, head_, j));
      scale_to(dv_ + j * width_, keep == nullptr ? 1.0F : keep[j], p_.depth,
               p_.head_rows(g.dv, p_.keys, b_, head_, j));
    }
    if (dhead_diagonals_ != nullptr)
      std::copy_n(dhead_diagonals_, head_diagonals,
                  g.dbias_diagonals + (b_ * p_.heads + head_) * head_diagonals);
  }

 private:
  /// delta = <dout, out> of each query; a query whose dout is 0 throughout has no part in any
  /// gradient and is left out (padding, mostly). Returns the keys that the others need.
  Range prepare(Range rows, const Gradients& g) {
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      const float* dout = p_.head_rows(g.dout, p_.queries, b_, head_, i);
      const auto row = static_cast<size_t>(i - rows.begin);
      is_left_out_[row] = std::all_of(dout, dout + p_.depth, [](float x) { return x == 0.0F; });
      delta_[row] = dot(dout, p_.head_rows(g.out, p_.queries, b_, head_, i), p_.depth);
    }
    const auto counts = [&](int64_t i) {
      return !is_left_out_[static_cast<size_t>(i - rows.begin)];
    };
    return keys_of(p_, b_, rows, counts, true);
  }

  void differentiate(Range rows, const Gradients& g) {
    const int64_t count = rows.end - rows.begin;
    const Range hull = prepare(rows, g);
    const float* q = p_.head_rows(p_.q, p_.queries, b_, head_, rows.begin);
    const float* dout = p_.head_rows(g.dout, p_.queries, b_, head_, rows.begin);
    const Panels queries{queries_, count, p_.depth}, douts{douts_, count, p_.depth};
    if (hull.begin < hull.end) {
      pack(q, p_.row_stride(), nullptr, queries);
      pack(dout, p_.row_stride(), nullptr, douts);
    } else {
      std::fill_n(dq_, count * width_, 0.0F);
    }
    for (int64_t key = hull.begin; key < hull.end; key += kKeyTile) {
      const Range block{key, std::min(key + kKeyTile, hull.end)}, all{0, p_.depth};
      const int64_t keys = block.end - block.begin;
      multiply({q, p_.row_stride(), 1}, count, keys_t_, all, block, weights_, stride_, false);
      multiply({dout, p_.row_stride(), 1}, count, values_t_, all, block, dscores_, stride_, false);
      for (int64_t i = rows.begin; i < rows.end; ++i) score_gradient(i, i - rows.begin, block, g);
      multiply({dscores_, stride_, 1}, count, keys_, block, all, dq_, width_, key != hull.begin);
      multiply({dscores_, 1, stride_}, keys, queries, {0, count}, all, dk_ + block.begin * width_,
               width_, true);
      multiply({weights_, 1, stride_}, keys, douts, {0, count}, all, dv_ + block.begin * width_,
               width_, true);
    }
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      scale_to(dq_ + (i - rows.begin) * width_, p_.scale, p_.depth,
               p_.head_rows(g.dq, p_.queries, b_, head_, i));
    }
  }

  /// Row `row` of the tile: scores become weights, gradients of weights become gradients of scores.
  void score_gradient(int64_t i, int64_t row, Range block, const Gradients& g) {
    float *weights = weights_ + row * stride_, *dscores = dscores_ + row * stride_;
    const int64_t keys = block.end - block.begin, width = round_up(keys, vector_floats());
    const AllowedKeys& allowed = p_.allowed_of(b_, i);
    const float* keep = p_.keep_row(b_, head_);
    if (keep != nullptr) keep += block.begin;
    float* dhead_diagonals = dhead_diagonals_ == nullptr
                                 ? nullptr
                                 : dhead_diagonals_ + (p_.queries - 1 - i) + block.begin;
    const float* bias = p_.head_diagonals(head_, i) + block.begin;
    const float lse = g.lse[(b_ * p_.heads + head_) * p_.queries + i], delta = delta_[row];
    Range live{0, 0};
    if (is_left_out_[static_cast<size_t>(row)]) {
      std::fill_n(weights, width, 0.0F);
    } else if (allowed.none()) {
      std::fill_n(weights, keys, 1.0F / static_cast<float>(p_.keys));
      std::fill(weights + keys, weights + width, 0.0F);
      live = {0, width};
      score_gradients<false>(weights, dscores, bias, lse, delta, keep, dhead_diagonals, live);
    } else {
      live = mask_row(p_, b_, i, block, weights);
      score_gradients<true>(weights, dscores, bias, lse, delta, keep, dhead_diagonals, live);
    }
    std::fill(dscores, dscores + live.begin, 0.0F);
    std::fill(dscores + live.end, dscores + width, 0.0F);
  }

  const Problem& p_;
  const int64_t b_, head_;
  Arena arena_;
  Panels keys_t_, values_t_, keys_;                // [depth, keys] twice, [keys, depth]
  float *queries_ = nullptr, *douts_ = nullptr;    // panels of a tile's rows, [tile, depth]
  int64_t stride_ = 0, width_ = 0;                 // of weights_ and dscores_; of dq_, dk_ and dv_
  float *weights_ = nullptr, *dscores_ = nullptr;  // [tile, block of keys]
  float *dq_ = nullptr, *dk_ = nullptr, *dv_ = nullptr;  // [tile or keys, depth]
  float *delta_ = nullptr, *dhead_diagonals_ = nullptr;
  std::array<bool, kQueryTile> is_left_out_{};
};

void gradient_head(const Problem& p, int64_t b, int64_t head, const Gradients& g, float* memory) {
  GradientHead(p, b, head, memory).run(g);
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quintet {
namespace {

// Sums over the batch, in its order, what each relative position has to say about its bucket; `beta`: of
// what is in dtable.
void table_gradient(const attention::Problem& p, const std::vector<float>& dbias_diagonals,
                    float beta, float* dtable) {
  const int64_t head_diagonals = p.queries + p.keys;
  std::vector<double> sums(static_cast<size_t>(p.rule.buckets));
  for (int64_t head = 0; head < p.heads; ++head) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t b = 0; b < p.batch; ++b) {
      const float* from = dbias_diagonals.data() + (b * p.heads + head) * head_diagonals;
      for (size_t i = 0; i < p.buckets.size(); ++i)
        sums[static_cast<size_t>(p.buckets[i])] += static_cast<double>(from[i]);
    }
    for (size_t r = 0; r < sums.size(); ++r) {
      float& to = dtable[static_cast<size_t>(head * p.rule.buckets) + r];
      to = (beta == 0 ? 0 : to) + static_cast<float>(sums[r]);
    }
  }
}

}  // namespace

HWY_EXPORT(gradient_floats);
HWY_EXPORT(gradient_head);

void attention_grad_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  constexpr const char* kOp = "attention_grad";
  QT_ASSERT(in.size() >= 11 && out.size() == 4);
  const attention::Problem p(in, attrs);
  cpu::expect_shape(in[8].sizes == in[0].sizes && in[10].sizes == in[0].sizes &&
                        out[0].sizes == in[0].sizes && out[1].sizes == in[1].sizes &&
                        out[2].sizes == in[1].sizes &&
                        in[9].elements() == p.batch * p.heads * p.queries,
                    kOp, "bq(hd), bhq, bq(hd) -> bq(hd), bk(hd), bk(hd)");
  attention::Gradients g{.out = cpu::f32(in[8], kOp, "out"),
                         .lse = cpu::f32(in[9], kOp, "lse"),
                         .dout = cpu::f32(in[10], kOp, "dout"),
                         .dq = cpu::f32(out[0], kOp, "dq"),
                         .dk = cpu::f32(out[1], kOp, "dk"),
                         .dv = cpu::f32(out[2], kOp, "dv")};
  const bool has_table = !out[3].absent();
  QT_ASSERT(!has_table || !in[3].absent());
  std::vector<float> dbias_diagonals;
  if (has_table) {
    dbias_diagonals.resize(static_cast<size_t>(p.batch * p.heads * (p.queries + p.keys)));
    g.dbias_diagonals = dbias_diagonals.data();
  }
  attention::for_each_head(p, HWY_DYNAMIC_DISPATCH(gradient_floats)(p),
                           [&](int64_t b, int64_t head, float* memory) {
                             HWY_DYNAMIC_DISPATCH(gradient_head)(p, b, head, g, memory);
                           });
  if (has_table)
    table_gradient(p, dbias_diagonals, cpu::copy_addend(in, 11, out, 3),
                   cpu::f32(out[3], kOp, "dtable"));
}

}  // namespace quintet
#endif
