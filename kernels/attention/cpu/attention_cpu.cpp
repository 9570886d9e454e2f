#include <cmath>
#include <limits>

#include "kernels/attention/attention.h"
#include "kernels/attention/cpu/heads.h"
#include "kernels/attention/cpu/problem.h"
#include "kernels/cpu/operands.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/cpu/attention_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/attention/cpu/softmax-inl.h"
#include "kernels/attention/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {

using attention::AllowedKeys;
using attention::Problem;

// Up to this many queries a head is computed query by query, straight from k and v: packing them
// for the tiles would cost more than it saves.
constexpr int64_t kFewQueries = 4;

int64_t forward_floats(const Problem& p) {
  if (p.queries <= kFewQueries) return round_up(p.keys, vector_floats());
  const int64_t tile = std::min(p.queries, kQueryTile);
  return Arena::floats({Panels::floats(p.depth, p.keys), Panels::floats(p.keys, p.depth),
                        tile * tile_stride(p.keys), tile * round_up(p.depth, vector_floats()), tile,
                        tile, p.depth});
}

/// Mean over all keys of keep * v: what a query without an allowed key gets.
void mean_value(const Problem& p, const float* v, const float* keep, float* mean) {
  std::fill(mean, mean + p.depth, 0.0F);
  const float share = p.keys == 0 ? 0.0F : 1.0F / static_cast<float>(p.keys);
  for (int64_t j = 0; j < p.keys; ++j) {
    const float weight = keep == nullptr ? share : share * keep[j];
    for (int64_t c = 0; c < p.depth; ++c) mean[c] += weight * v[j * p.row_stride() + c];
  }
}

/// One head of one sequence in tiles of queries; softmax is kept up to date while blocks of keys
/// pass.
class ForwardHead {
 public:
  ForwardHead(const Problem& p, int64_t b, int64_t head, float* memory)
      : p_(p), b_(b), head_(head), arena_{memory} {
    const int64_t tile = std::min(p.queries, kQueryTile);
    const float* keep = p.keep_row(b, head);
    keys_ = {arena_.take(Panels::floats(p.depth, p.keys)), p.depth, p.keys};
    values_ = {arena_.take(Panels::floats(p.keys, p.depth)), p.keys, p.depth};
    pack_transposed(p.head_rows(p.k, p.keys, b, head), p.row_stride(), p.scale, keys_);
    pack(p.head_rows(p.v, p.keys, b, head), p.row_stride(), keep, values_);
    stride_ = tile_stride(p.keys);
    scores_ = arena_.take(tile * stride_);
    sums_ = arena_.take(tile * values_.width());
    largest_ = arena_.take(tile);
    total_ = arena_.take(tile);
    mean_ = arena_.take(p.depth);
  }

  void run(float* out, float* lse) {
    const int64_t tiles = (p_.queries + kQueryTile - 1) / kQueryTile;
    for (int64_t t = 0; t < tiles; ++t) {
      const Range rows{p_.queries * t / tiles, p_.queries * (t + 1) / tiles};
      attend(rows);
      finish(rows, out, lse);
    }
  }

 private:
  void attend(Range rows) {
    std::fill_n(largest_, rows.end - rows.begin, -std::numeric_limits<float>::infinity());
    std::fill_n(total_, rows.end - rows.begin, 0.0F);
    const Range hull = keys_of(p_, b_, rows, [](int64_t) { return true; });
    const float* q = p_.head_rows(p_.q, p_.queries, b_, head_, rows.begin);
    for (int64_t key = hull.begin; key < hull.end; key += kKeyTile) {
      const Range block{key, std::min(key + kKeyTile, hull.end)};
      const bool is_first = key == hull.begin;
      multiply({q, p_.row_stride(), 1}, rows.end - rows.begin, keys_, {0, p_.depth}, block, scores_,
               stride_, false);
      for (int64_t i = rows.begin; i < rows.end; ++i) softmax_row(rows, i, block, is_first);
      multiply({scores_, stride_, 1}, rows.end - rows.begin, values_, block, {0, p_.depth}, sums_,
               values_.width(), !is_first);
    }
  }

  /// Scores of query i and the keys of `block` become exp(score - largest so far).
  void softmax_row(Range rows, int64_t i, Range block, bool is_first) {
    const int64_t row = i - rows.begin;
    float* scores = scores_ + row * stride_;
    const Range live = mask_row(p_, b_, i, block, scores);
    if (live.begin >= live.end) return;
    const float* bias = p_.head_diagonals(head_, i) + block.begin;
    const float before = largest_[row], here = add_bias(scores, bias, live);
    const float largest = here > before || std::isnan(here) ? here : before;
    if (std::isinf(largest) && largest < 0)
      return std::fill(scores + live.begin, scores + live.end, 0.0F);
    const float sum = exponentials(scores, largest, live);
    const float rescale = std::exp(before - largest);
    largest_[row] = largest;
    total_[row] = total_[row] * rescale + sum;
    float* sums = sums_ + row * values_.width();
    if (!is_first && rescale != 1.0F) scale_to(sums, rescale, values_.width(), sums);
  }

  void finish(Range rows, float* out, float* lse) {
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      const int64_t row = i - rows.begin;
      float* to = p_.head_rows(out, p_.queries, b_, head_, i);
      float log_sum = kMaskedScore;
      if (p_.allowed_of(b_, i).none()) {
        if (!has_mean_)
          mean_value(p_, p_.head_rows(p_.v, p_.keys, b_, head_), p_.keep_row(b_, head_), mean_);
        has_mean_ = true;
        std::copy_n(mean_, p_.depth, to);
      } else {
        scale_to(sums_ + row * values_.width(), 1.0F / total_[row], p_.depth, to);
        log_sum = largest_[row] + std::log(total_[row]);
      }
      if (lse != nullptr) lse[(b_ * p_.heads + head_) * p_.queries + i] = log_sum;
    }
  }

  const Problem& p_;
  const int64_t b_, head_;
  Arena arena_;
  Panels keys_, values_;                       // [depth, keys], [keys, depth]
  int64_t stride_ = 0;                         // of scores_
  float *scores_ = nullptr, *sums_ = nullptr;  // [tile, block of keys], [tile, depth]
  float *largest_ = nullptr, *total_ = nullptr, *mean_ = nullptr;
  bool has_mean_ = false;
};

/// to = sum over j < count of weight[j] * x[j * stride + ...], `depth` floats.
void weighted_sum(const float* weight, const float* x, int64_t count, int64_t stride, int64_t depth,
                  float* to) {
  const F d;
  const int64_t lanes = vector_floats();
  int64_t c = 0;
  for (; c + 4 * lanes <= depth; c += 4 * lanes) {
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t j = 0; j < count; ++j) {
      const float* row = x + j * stride + c;
      const auto w = hn::Set(d, weight[j]);
      s0 = hn::MulAdd(w, hn::LoadU(d, row), s0);
      s1 = hn::MulAdd(w, hn::LoadU(d, row + lanes), s1);
      s2 = hn::MulAdd(w, hn::LoadU(d, row + 2 * lanes), s2);
      s3 = hn::MulAdd(w, hn::LoadU(d, row + 3 * lanes), s3);
    }
    hn::StoreU(s0, d, to + c);
    hn::StoreU(s1, d, to + c + lanes);
    hn::StoreU(s2, d, to + c + 2 * lanes);
    hn::StoreU(s3, d, to + c + 3 * lanes);
  }
  for (; c + lanes <= depth; c += lanes) {
    auto sum = hn::Zero(d);
    for (int64_t j = 0; j < count; ++j)
      sum = hn::MulAdd(hn::Set(d, weight[j]), hn::LoadU(d, x + j * stride + c), sum);
    hn::StoreU(sum, d, to + c);
  }
  for (; c < depth; ++c) {
    float sum = 0;
    for (int64_t j = 0; j < count; ++j) sum += weight[j] * x[j * stride + c];
    to[c] = sum;
  }
}

/// The same head query by query; scores: [keys rounded up to a vector].
void forward_few_queries(const Problem& p, int64_t b, int64_t head, float* out, float* lse,
                         float* scores) {
  const float* keep = p.keep_row(b, head);
  const float *k = p.head_rows(p.k, p.keys, b, head), *v = p.head_rows(p.v, p.keys, b, head);
  for (int64_t i = 0; i < p.queries; ++i) {
    const AllowedKeys keys = p.allowed_of(b, i);
    float* to = p.head_rows(out, p.queries, b, head, i);
    float log_sum = kMaskedScore;
    if (keys.none()) {
      mean_value(p, v, keep, to);
    } else {
      const float* q = p.head_rows(p.q, p.queries, b, head, i);
      for (int64_t j = keys.begin; j < keys.end; ++j)
        scores[j] = p.scale * dot(q, k + j * p.row_stride(), p.depth);
      const Range live = mask_row(p, b, i, {0, p.keys}, scores);
      const float largest = add_bias(scores, p.head_diagonals(head, i), live);
      const float total = exponentials(scores, largest, live), share = 1.0F / total;
      for (int64_t j = keys.begin; j < keys.end; ++j)
        scores[j] *= keep == nullptr ? share : share * keep[j];
      weighted_sum(scores + keys.begin, v + keys.begin * p.row_stride(), keys.end - keys.begin,
                   p.row_stride(), p.depth, to);
      log_sum = largest + std::log(total);
    }
    if (lse != nullptr) lse[(b * p.heads + head) * p.queries + i] = log_sum;
  }
}

void forward_head(const Problem& p, int64_t b, int64_t head, float* out, float* lse,
                  float* memory) {
  if (p.queries <= kFewQueries) return forward_few_queries(p, b, head, out, lse, memory);
  ForwardHead(p, b, head, memory).run(out, lse);
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quintet {

HWY_EXPORT(forward_floats);
HWY_EXPORT(forward_head);

void attention_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const attention::Problem p(in, attrs);
  QT_ASSERT(out.size() == 2);
  cpu::expect_shape(out[0].sizes == in[0].sizes, "attention", "bq(hd) -> bq(hd)");
  float* result = cpu::f32(out[0], "attention", "out");
  float* lse = out[1].absent() ? nullptr : cpu::f32(out[1], "attention", "lse");
  attention::for_each_head(p, HWY_DYNAMIC_DISPATCH(forward_floats)(p),
                           [&](int64_t b, int64_t head, float* memory) {
                             HWY_DYNAMIC_DISPATCH(forward_head)(p, b, head, result, lse, memory);
                           });
}

}  // namespace quintet
#endif
