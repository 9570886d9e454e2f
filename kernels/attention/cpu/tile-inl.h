// Small float32 matrix products for attention's tiles, on one thread: C = A B with A read by any
// pair of strides (so A^T costs the same) and B packed in panels of two vectors of columns. Include
// after hwy/highway.h, as Highway's -inl headers are.
//
//   Panels keys = ...; pack_transposed(k, stride, 1.0F, keys);     // B = k^T
//   multiply({q, stride, 1}, rows_of_q, keys, 0, depth, {0, keys.width()}, scores, ld, false);

#if defined(QUINTET_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINTET_ATTENTION_TILE_INL_H_
#undef QUINTET_ATTENTION_TILE_INL_H_
#else
#define QUINTET_ATTENTION_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
constexpr int kPanelVectors = 2;
// Accumulators of a block, rows x kPanelVectors, that the registers hold beside B and one of A.
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kBlockRows = 6;
#else
constexpr int kBlockRows = 14;
#endif

inline int64_t vector_floats() { return static_cast<int64_t>(hn::Lanes(F())); }
inline int64_t panel_floats() { return kPanelVectors * vector_floats(); }
inline int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/// The left operand: element (i, p) is data[i * row + p * column].
struct Left {
  const float* data;
  int64_t row, column;
};

/// The right operand [depth, columns]: panel j holds columns j * panel_floats() and up, all depths,
/// [depth][panel_floats()]; columns beyond the last are 0.
struct Panels {
  float* data = nullptr;
  int64_t depth = 0, columns = 0;

  int64_t width() const { return round_up(columns, vector_floats()); }
  static int64_t floats(int64_t depth, int64_t columns) {
    return depth * round_up(columns, panel_floats());
  }
  float* panel(int64_t j) const { return data + j * depth * panel_floats(); }
};

struct Range {
  int64_t begin, end;
};

/// A block of C: kM rows by kN vectors. b points at the first depth; c is added to if `add`.
template <int kM, int kN>
void multiply_block(const float* HWY_RESTRICT a, int64_t a_row, int64_t a_column,
                    const float* HWY_RESTRICT b, int64_t depth, float* HWY_RESTRICT c, int64_t ldc,
                    bool add) {
  const F d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<F> sum[kM][kN];
#pragma GCC unroll 16
  for (int i = 0; i < kM; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < kN; ++j) sum[i][j] = hn::Zero(d);
  for (int64_t p = 0; p < depth; ++p, a += a_column, b += kPanelVectors * lanes) {
    hn::Vec<F> right[kN];
#pragma GCC unroll 2
    for (int j = 0; j < kN; ++j) right[j] = hn::Load(d, b + static_cast<size_t>(j) * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < kM; ++i) {
      const auto broadcast = hn::Set(d, a[i * a_row]);
#pragma GCC unroll 2
      for (int j = 0; j < kN; ++j) sum[i][j] = hn::MulAdd(broadcast, right[j], sum[i][j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kM; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < kN; ++j) {
      float* to = c + i * ldc + j * static_cast<int64_t>(lanes);
      const auto value = add ? hn::Add(hn::LoadU(d, to), sum[i][j]) : sum[i][j];
      hn::StoreU(value, d, to);
    }
}

using BlockFunction = void (*)(const float*, int64_t, int64_t, const float*, int64_t, float*,
                               int64_t, bool);

template <int... kM>
BlockFunction block_function(int64_t rows, int64_t vectors, std::integer_sequence<int, kM...>) {
  static constexpr BlockFunction kFunctions[2][sizeof...(kM)] = {{multiply_block<kM + 1, 1>...},
                                                                 {multiply_block<kM + 1, 2>...}};
  return kFunctions[vectors - 1][rows - 1];
}

/// c[i, j] (+)= sum over depths p in `depths` of a(i, p - depths.begin) b(p, j), for i < rows and
/// the columns j of `columns`, which begins on a panel and is cut to whole vectors; c points at its
/// first column.
inline void multiply(Left a, int64_t rows, const Panels& b, Range depths, Range columns, float* c,
                     int64_t ldc, bool add) {
  constexpr auto kSizes = std::make_integer_sequence<int, kBlockRows>();
  const int64_t lanes = vector_floats(), panel = panel_floats(), depth = depths.end - depths.begin;
  const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows, few = rows / blocks;
  const int64_t more = rows % blocks;  // blocks of few + 1 rows, before those of few
  const int64_t end = std::min(round_up(columns.end, lanes), b.width());
  for (int64_t column = columns.begin; column < end; column += panel, c += panel) {
    const int64_t vectors = std::min(panel, end - column) / lanes;
    const float* right = b.panel(column / panel) + depths.begin * panel;
    const auto large = more == 0 ? nullptr : block_function(few + 1, vectors, kSizes);
    const auto small = block_function(few, vectors, kSizes);
    const float* left = a.data;
    float* to = c;
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t size = block < more ? few + 1 : few;
      (block < more ? large : small)(left, a.row, a.column, right, depth, to, ldc, add);
      left += size * a.row;
      to += size * ldc;
    }
  }
}

/// b(p, j) = x[p * stride + j] * (row_factor[p], if given).
inline void pack(const float* x, int64_t stride, const float* row_factor, Panels b) {
  const F d;
  const int64_t lanes = vector_floats(), panel = panel_floats();
  for (int64_t column = 0; column < b.columns; column += panel) {
    float* to = b.panel(column / panel);
    const int64_t width = std::min(panel, b.columns - column);
    for (int64_t p = 0; p < b.depth; ++p, to += panel) {
      const float* from = x + p * stride + column;
      const float factor = row_factor == nullptr ? 1.0F : row_factor[p];
      int64_t j = 0;
      for (; j + lanes <= width; j += lanes)
        hn::Store(hn::Mul(hn::LoadU(d, from + j), hn::Set(d, factor)), d, to + j);
      for (; j < width; ++j) to[j] = from[j] * factor;
      std::fill(to + width, to + panel, 0.0F);
    }
  }
}

/// to[j * to_stride + i] = factor * from[i * from_stride + j] for i, j < 4.
HWY_INLINE void transpose_4x4(const float* from, int64_t from_stride, float factor, float* to,
                              int64_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t j = 0; j < 4; ++j) to[j * to_stride + i] = factor * from[i * from_stride + j];
#else
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> dw;
  const auto f = hn::Set(d, factor);
  const auto row = [&](int64_t i)
                       HWY_ATTR { return hn::Mul(f, hn::LoadU(d, from + i * from_stride)); };
  const auto r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
  // Pairs of rows interleaved, then pairs of pairs.
  const auto a0 = hn::BitCast(dw, hn::InterleaveLower(d, r0, r1));  // 00 10 01 11
  const auto b0 = hn::BitCast(dw, hn::InterleaveLower(d, r2, r3));  // 20 30 21 31
  const auto a1 = hn::BitCast(dw, hn::InterleaveUpper(d, r0, r1));
  const auto b1 = hn::BitCast(dw, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, a0, b0)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, a0, b0)), d, to + to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, a1, b1)), d, to + 2 * to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, a1, b1)), d, to + 3 * to_stride);
#endif
}

/// b(p, j) = factor * x[j * stride + p].
inline void pack_transposed(const float* x, int64_t stride, float factor, Panels b) {
  const int64_t panel = panel_floats(), deep = b.depth / 4 * 4;
  for (int64_t column = 0; column < b.columns; column += panel) {
    float* to = b.panel(column / panel);
    const int64_t width = std::min(panel, b.columns - column);
    const int64_t tiled = panel % 4 == 0 ? width / 4 * 4 : 0;
    for (int64_t j = 0; j < tiled; j += 4)
      for (int64_t p = 0; p < deep; p += 4)
        transpose_4x4(x + (column + j) * stride + p, stride, factor, to + p * panel + j, panel);
    for (int64_t j = 0; j < width; ++j)
      for (int64_t p = j < tiled ? deep : 0; p < b.depth; ++p)
        to[p * panel + j] = factor * x[(column + j) * stride + p];
    for (int64_t p = 0; p < b.depth; ++p)
      std::fill(to + p * panel + width, to + (p + 1) * panel, 0.0F);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#endif
