// What the forward and the gradient kernel share besides products: tiles, masks and rows of
// softmax. Include after hwy/highway.h, as Highway's -inl headers are.

#if defined(QUINTET_ATTENTION_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINTET_ATTENTION_SOFTMAX_INL_H_
#undef QUINTET_ATTENTION_SOFTMAX_INL_H_
#else
#define QUINTET_ATTENTION_SOFTMAX_INL_H_
#endif

#include <initializer_list>
#include <limits>

#include "kernels/attention/cpu/problem.h"
#include "kernels/attention/cpu/tile-inl.h"
#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Tiles of 128 x 512 floats (256 KiB) stay in a second-level cache; README.md has the times.
constexpr int64_t kQueryTile = 128, kKeyTile = 512;
constexpr int64_t kAlignFloats = 16;

/// Floats between rows of a tile. One vector more than needed: rows a power of two apart would
/// share the few sets of the first-level cache when a column is read.
inline int64_t tile_stride(int64_t keys) {
  return round_up(std::min(keys, kKeyTile), panel_floats()) + vector_floats();
}

/// Hands out aligned parts of one allocation.
struct Arena {
  float* next;
  /// What an arena needs for parts of these sizes.
  static int64_t floats(std::initializer_list<int64_t> parts) {
    int64_t sum = 0;
    for (int64_t part : parts) sum += round_up(part, kAlignFloats);
    return sum;
  }
  float* take(int64_t floats) {
    float* taken = next;
    next += round_up(floats, kAlignFloats);
    return taken;
  }
};

/// The smallest range, from a panel's first key, of the keys that the queries of `rows` for which
/// include(query) holds may attend to; queries without an allowed key count only if `all_for_none`.
template <class Include>
inline Range keys_of(const attention::Problem& p, int64_t b, Range rows, const Include& include,
                     bool all_for_none = false) {
  Range hull{p.keys, 0};
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    if (!include(i)) continue;
    const attention::AllowedKeys& keys = p.allowed_of(b, i);
    if (keys.none() && all_for_none) return {0, p.keys};
    if (keys.none()) continue;
    hull.begin = std::min<int64_t>(hull.begin, keys.begin);
    hull.end = std::max<int64_t>(hull.end, keys.end);
  }
  hull.begin = hull.begin / panel_floats() * panel_floats();
  return hull;
}

/// Prepares the scores of query i and the keys of `block` (row[0] is its first key): outside the
/// range returned, whole vectors relative to the block, they become 0; inside, masked ones become
/// -infinity.
inline Range mask_row(const attention::Problem& p, int64_t b, int64_t i, Range block, float* row) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  const attention::AllowedKeys& keys = p.allowed_of(b, i);
  const int64_t width = round_up(block.end - block.begin, vector_floats());
  const int64_t begin = std::clamp<int64_t>(keys.begin, block.begin, block.end) - block.begin;
  const int64_t end = std::clamp<int64_t>(keys.end, block.begin, block.end) - block.begin;
  if (begin >= end) {
    std::fill(row, row + width, 0.0F);
    return {0, 0};
  }
  const Range live{begin / vector_floats() * vector_floats(), round_up(end, vector_floats())};
  if (keys.has_holes)
    for (int64_t j = begin; j < end; ++j)
      if (!p.allowed(b, i, block.begin + j)) row[j] = kNever;
  std::fill(row, row + live.begin, 0.0F);
  std::fill(row + live.begin, row + begin, kNever);
  std::fill(row + end, row + live.end, kNever);
  std::fill(row + live.end, row + width, 0.0F);
  return live;
}

/// row += bias over `live`; returns the largest sum (a NaN may be passed over).
inline float add_bias(float* HWY_RESTRICT row, const float* HWY_RESTRICT bias, Range live) {
  const F d;
  const int64_t lanes = vector_floats();
  auto largest = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int64_t j = live.begin; j < live.end; j += lanes) {
    const auto sum = hn::Add(hn::LoadU(d, row + j), hn::LoadU(d, bias + j));
    hn::StoreU(sum, d, row + j);
    largest = hn::Max(largest, sum);
  }
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

/// row = exp(row - shift) over `live`; returns the sum.
inline float exponentials(float* HWY_RESTRICT row, float shift, Range live) {
  const F d;
  const auto shifts = hn::Set(d, shift);
  auto total = hn::Zero(d);
  for (int64_t j = live.begin; j < live.end; j += vector_floats()) {
    const auto e = exponential(d, hn::Sub(hn::LoadU(d, row + j), shifts));
    hn::StoreU(e, d, row + j);
    total = hn::Add(total, e);
  }
  return hn::GetLane(hn::SumOfLanes(d, total));
}

/// to = factor * from, n floats; nothing beyond them is written.
inline void scale_to(const float* from, float factor, int64_t n, float* to) {
  const F d;
  const int64_t lanes = vector_floats();
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, from + i), hn::Set(d, factor)), d, to + i);
  for (; i < n; ++i) to[i] = factor * from[i];
}

/// <x, y> of n floats.
inline float dot(const float* HWY_RESTRICT x, const float* HWY_RESTRICT y, int64_t n) {
  const F d;
  const int64_t lanes = vector_floats();
  auto sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    sum = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sum);
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) total += x[i] * y[i];
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#endif
