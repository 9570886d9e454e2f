#include "kernels/packed_matmul/packed_matmul.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/packed_matmul/packed_matmul.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/exp-inl.h"

#ifndef QUINTET_PACKED_MATMUL_ONCE
#define QUINTET_PACKED_MATMUL_ONCE
namespace quintet {
/// Most rows of a group on any instruction set.
inline constexpr int kMostGroupRows = 14;
/// Most columns of a panel: two vectors of 128 bytes.
inline constexpr int kMostPanelWidth = 64;
enum class TileUse { store, add, scale, activate, multiply_activated };
}  // namespace quintet
#endif

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;

// Accumulators take 2 registers a row; with 2 for the weights and 1 for the broadcast, 14 rows fill
// the 32 registers of AVX-512 and 6 the 16 of AVX2 and SSE4.
#if HWY_TARGET <= HWY_AVX3
constexpr int kGroupRows = 14;
#else
constexpr int kGroupRows = 6;
#endif

int64_t width() { return static_cast<int64_t>(2 * hn::Lanes(F())); }
int64_t rows_at_once() { return kGroupRows; }

/// tile [kRows, 2 vectors] = x^T w for x [k, kRows] and w [k, 2 vectors]. Every four steps fetch
/// `lines` cache lines from `ahead` on into the second-level cache.
template <int kRows>
void tile_product(const float* HWY_RESTRICT x, const float* HWY_RESTRICT w, int64_t k,
                  float* HWY_RESTRICT tile, const char* ahead, int64_t lines) {
  const F d;
  const size_t lanes = hn::Lanes(d);
  V sum[kRows][2];
#pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = hn::Zero(d);
  const auto step = [&](const float* HWY_RESTRICT xi, const float* HWY_RESTRICT wi) HWY_ATTR {
    const V w0 = hn::Load(d, wi), w1 = hn::Load(d, wi + lanes);
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r) {
      const V xr = hn::Set(d, xi[r]);
      sum[r][0] = hn::MulAdd(xr, w0, sum[r][0]);
      sum[r][1] = hn::MulAdd(xr, w1, sum[r][1]);
    }
  };
  int64_t i = 0;
  for (; i + 4 <= k; i += 4) {
    for (int64_t line = 0; line < lines; ++line) __builtin_prefetch(ahead + 64 * line, 0, 2);
    ahead += 64 * lines;
    step(x, w);
    step(x + kRows, w + 2 * lanes);
    step(x + 2 * kRows, w + 4 * lanes);
    step(x + 3 * kRows, w + 6 * lanes);
    x += 4 * kRows;
    w += 8 * lanes;
  }
  for (; i < k; ++i, x += kRows, w += 2 * lanes) step(x, w);
#pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r) {
    hn::Store(sum[r][0], d, tile + static_cast<size_t>(r) * 2 * lanes);
    hn::Store(sum[r][1], d, tile + static_cast<size_t>(r) * 2 * lanes + lanes);
  }
}

using TileProduct = void (*)(const float*, const float*, int64_t, float*, const char*, int64_t);

template <int... kRows>
constexpr std::array<TileProduct, sizeof...(kRows)> tile_products(
    std::integer_sequence<int, kRows...>) {
  return {&tile_product<kRows + 1>...};
}

void multiply_rows(int64_t rows, const float* x, const float* w, int64_t k, float* tile,
                   const char* ahead, int64_t lines) {
  static constexpr auto kProducts = tile_products(std::make_integer_sequence<int, kGroupRows>());
  kProducts[static_cast<size_t>(rows - 1)](x, w, k, tile, ahead, lines);
}

void normalize(const float* x, int64_t k, const float* gain, float eps, float* out) {
  const F d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V s0 = hn::Zero(d), s1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= k; i += 2 * lanes) {
    const V a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes);
    s0 = hn::MulAdd(a, a, s0);
    s1 = hn::MulAdd(b, b, s1);
  }
  float square = hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1)));
  for (; i < k; ++i) square += x[i] * x[i];
  const float scale = 1.0f / std::sqrt(square / static_cast<float>(k) + eps);
  const V by = hn::Set(d, scale);
  for (i = 0; i + lanes <= k; i += lanes)
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), by), hn::LoadU(d, gain + i)), d, out + i);
  for (; i < k; ++i) out[i] = x[i] * scale * gain[i];
}

/// x [rows, k], rows `stride` apart -> out [k, rows], in squares of 4 x 4; the last square of a row
/// range overlaps the one before.
void transpose(const float* x, int64_t rows, int64_t k, int64_t stride, float* out) {
  const int64_t whole = k / 4 * 4;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  for (int64_t r = 0; rows >= 4 && r < rows; r += 4) {
    const int64_t first = std::min(r, rows - 4);
    const float* in = x + first * stride;
    for (int64_t i = 0; i < whole; i += 4) {
      const auto a = hn::LoadU(d, in + i), b = hn::LoadU(d, in + stride + i);
      const auto c = hn::LoadU(d, in + 2 * stride + i), e = hn::LoadU(d, in + 3 * stride + i);
      const auto ac0 = hn::InterleaveLower(d, a, c), ac1 = hn::InterleaveUpper(d, a, c);
      const auto be0 = hn::InterleaveLower(d, b, e), be1 = hn::InterleaveUpper(d, b, e);
      float* to = out + i * rows + first;
      hn::StoreU(hn::InterleaveLower(d, ac0, be0), d, to);
      hn::StoreU(hn::InterleaveUpper(d, ac0, be0), d, to + rows);
      hn::StoreU(hn::InterleaveLower(d, ac1, be1), d, to + 2 * rows);
      hn::StoreU(hn::InterleaveUpper(d, ac1, be1), d, to + 3 * rows);
    }
  }
  const int64_t begin = rows >= 4 ? whole : 0;
#else
  const int64_t begin = 0 * whole;
#endif
  for (int64_t i = begin; i < k; ++i)
    for (int64_t r = 0; r < rows; ++r) out[i * rows + r] = x[r * stride + i];
}

template <class Value>
HWY_INLINE void each_vector(const float* tile, int64_t rows, int64_t columns, int64_t row_width,
                            float* y, int64_t stride, const Value& value) {
  const F d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = tile + r * row_width;
    float* out = y + r * stride;
    int64_t c = 0;
    for (; c + lanes <= columns; c += lanes)
      hn::StoreU(value(hn::Load(d, in + c), hn::LoadU(d, out + c)), d, out + c);
    if (c < columns) {
      HWY_ALIGN float old[HWY_MAX_BYTES / sizeof(float)] = {};
      std::copy(out + c, out + columns, old);
      hn::Store(value(hn::Load(d, in + c), hn::Load(d, old)), d, old);
      std::copy_n(old, columns - c, out + c);
    }
  }
}

/// 1 / (1 + exp(-x)).
HWY_INLINE V logistic(V x) {
  const F d;
  const V one = hn::Set(d, 1.0f);
  const V e = exponential(d, hn::Min(hn::Neg(x), hn::Set(d, 88.0f)));
  return hn::Div(one, hn::Add(one, e));
}

HWY_INLINE V activate(Activation activation, V x) {
  const F d;
  switch (activation) {
    case Activation::linear:
      return x;
    case Activation::relu:
      return hn::Max(x, hn::Zero(d));
    case Activation::silu:
      return hn::Mul(x, logistic(x));
    case Activation::gelu: {
      // 0.5 x (1 + tanh(u)) = x logistic(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3)
      // (arXiv:1606.08415).
      const V cubic = hn::Mul(hn::Mul(x, x), hn::Mul(x, hn::Set(d, 0.044715f)));
      return hn::Mul(x, logistic(hn::Mul(hn::Set(d, 1.5957691216f), hn::Add(x, cubic))));
    }
  }
  return x;
}

void use_tile(const float* tile, int64_t rows, int64_t columns, float* y, int64_t stride,
              TileUse use, float factor, Activation activation) {
  const F d;
  const V by = hn::Set(d, factor);
  const int64_t w = width();
  switch (use) {
    case TileUse::store:
      return each_vector(tile, rows, columns, w, y, stride, [](V t, V) HWY_ATTR { return t; });
    case TileUse::add:
      return each_vector(tile, rows, columns, w, y, stride,
                         [](V t, V old) HWY_ATTR { return hn::Add(t, old); });
    case TileUse::scale:
      return each_vector(tile, rows, columns, w, y, stride,
                         [by](V t, V) HWY_ATTR { return hn::Mul(t, by); });
    case TileUse::activate:
      return each_vector(tile, rows, columns, w, y, stride,
                         [activation](V t, V) HWY_ATTR { return activate(activation, t); });
    case TileUse::multiply_activated:
      return each_vector(tile, rows, columns, w, y, stride, [activation](V t, V old) HWY_ATTR {
        return hn::Mul(old, activate(activation, t));
      });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <sys/mman.h>

#include "runtime/base/check.h"

namespace quintet {

HWY_EXPORT(width);
HWY_EXPORT(rows_at_once);
HWY_EXPORT(multiply_rows);
HWY_EXPORT(normalize);
HWY_EXPORT(transpose);
HWY_EXPORT(use_tile);

int64_t panel_width() {
  static const int64_t value = HWY_DYNAMIC_DISPATCH(width)();
  return value;
}
int64_t group_rows() {
  static const int64_t value = HWY_DYNAMIC_DISPATCH(rows_at_once)();
  return value;
}

namespace {

constexpr int64_t kHugePage = 2 << 20;

/// Bytes rounded up to whole huge pages, at an address that is a multiple of one.
std::shared_ptr<float> map_huge(int64_t bytes) {
  const auto mapped = static_cast<size_t>(bytes + kHugePage);
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  QT_CHECK_AS(ExitCode::kEnvironment, p != MAP_FAILED,
              "generation: cannot get {} MB of memory; use a smaller batch, length or model",
              mapped >> 20);
  const auto address = reinterpret_cast<uintptr_t>(p);
  const auto aligned = (address + kHugePage - 1) / kHugePage * kHugePage;
  madvise(reinterpret_cast<void*>(aligned), static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return {reinterpret_cast<float*>(aligned), [p, mapped](float*) { munmap(p, mapped); }};
}

}  // namespace

std::shared_ptr<float> HugeArena::allocate(int64_t floats) {
  constexpr int64_t kAlign = 64, kChunk = (32 << 20) / 4;  // floats
  const int64_t wanted = (floats + kAlign - 1) / kAlign * kAlign;
  if (used_ + wanted > size_) {
    constexpr int64_t kPage = kHugePage / 4;
    size_ = std::max(kChunk, (wanted + kPage - 1) / kPage * kPage);
    chunk_ = map_huge(4 * size_);
    used_ = 0;
  }
  std::shared_ptr<float> block(chunk_, chunk_.get() + used_);
  used_ += wanted;
  return block;
}

PackedMatrix::PackedMatrix(int64_t k, int64_t n, HugeArena& arena)
    : k_(k),
      n_(n),
      panels_((n + panel_width() - 1) / panel_width()),
      data_(arena.allocate(panels_ * k * panel_width())) {}

void PackedMatrix::set_columns(int64_t first, const float* w, int64_t columns, int64_t stride) {
  const int64_t width = panel_width();
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < k_; ++i) {
    for (int64_t c = 0; c < columns;) {
      const int64_t column = first + c, panel = column / width, offset = column % width;
      const int64_t run = std::min(columns - c, width - offset);
      std::copy_n(w + i * stride + c, run, data_.get() + (panel * k_ + i) * width + offset);
      c += run;
    }
  }
}

PackedMatrix PackedMatrix::pack(const float* w, int64_t k, int64_t n, HugeArena& arena) {
  PackedMatrix packed(k, n, arena);
  packed.set_columns(0, w, n, n);
  return packed;
}

PackedMatrix PackedMatrix::pack_transposed(const float* w, int64_t n, int64_t k, HugeArena& arena) {
  PackedMatrix packed(k, n, arena);
  const int64_t width = panel_width();
#pragma omp parallel for schedule(static)
  for (int64_t panel = 0; panel < packed.panels_; ++panel) {
    float* out = packed.data_.get() + panel * k * width;
    const int64_t columns = std::min(width, n - panel * width);
    for (int64_t i = 0; i < k; ++i)
      for (int64_t c = 0; c < columns; ++c) out[i * width + c] = w[(panel * width + c) * k + i];
  }
  return packed;
}

PanelRange PackedMatrix::share(int64_t part, int64_t parts, int64_t unit) const {
  const int64_t units = (panels_ + unit - 1) / unit;
  return {std::min(panels_, units * part / parts * unit),
          std::min(panels_, units * (part + 1) / parts * unit)};
}

void PackedRows::resize(int64_t rows, int64_t k) {
  rows_ = rows;
  k_ = k;
  groups_ = (rows + group_rows() - 1) / group_rows();
  data_.resize(static_cast<size_t>(rows * k));
  row_.resize(static_cast<size_t>(group_rows() * k));
}

namespace {

/// [rows, k] -> [k, rows].
void regroup(const float* x, int64_t rows, int64_t k, int64_t stride, float* out) {
  HWY_DYNAMIC_DISPATCH(transpose)(x, rows, k, stride, out);
}

}  // namespace

void PackedRows::pack(const float* x, int64_t rows, int64_t k, int64_t stride) {
  resize(rows, k);
  for (int64_t g = 0; g < groups_; ++g) {
    const int64_t first = first_row(g);
    regroup(x + first * stride, first_row(g + 1) - first, k, stride, data_.data() + first * k);
  }
}

void PackedRows::pack_normalized(const float* x, int64_t rows, int64_t k, const float* gain,
                                 float eps) {
  resize(rows, k);
  for (int64_t g = 0; g < groups_; ++g) {
    const int64_t first = first_row(g), count = first_row(g + 1) - first;
    for (int64_t r = 0; r < count; ++r)
      HWY_DYNAMIC_DISPATCH(normalize)(x + (first + r) * k, k, gain, eps, row_.data() + r * k);
    regroup(row_.data(), count, k, k, data_.data() + first * k);
  }
}

void PackedRows::unpack(float* out) const {
  for (int64_t g = 0; g < groups_; ++g) {
    const int64_t first = first_row(g), count = first_row(g + 1) - first;
    for (int64_t r = 0; r < count; ++r)
      for (int64_t i = 0; i < k_; ++i) out[(first + r) * k_ + i] = group(g)[i * count + r];
  }
}

void multiply(const PackedRows& x, const PackedMatrix& w, PanelRange panels,
              const std::function<void(const Tile&)>& done, const float* next) {
  QT_ASSERT(x.k() == w.k() && panel_width() <= kMostPanelWidth);
  if (x.rows() == 0) return;
  alignas(128) float values[kMostGroupRows * kMostPanelWidth];
  const int64_t width = panel_width(), k = w.k(), groups = x.groups();
  // While a panel is computed, group after group, the one after it is fetched: each four steps of
  // each group ask for their part of its 4 * width floats.
  const int64_t lines = (4 * width * 4 / 64 + groups - 1) / groups;
  for (int64_t p = panels.begin; p < panels.end; ++p) {
    const float* following = p + 1 < panels.end ? w.panel(p + 1) : next;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first = x.first_row(g), rows = x.first_row(g + 1) - first;
      const int64_t offset = g * (k / 4) * lines * 64;
      const bool fetch = following != nullptr && offset < k * width * 4;
      const char* ahead = fetch ? reinterpret_cast<const char*>(following) + offset : nullptr;
      HWY_DYNAMIC_DISPATCH(multiply_rows)
      (rows, x.group(g), w.panel(p), k, values, ahead, fetch ? lines : 0);
      done({.panel = p,
            .row = first,
            .rows = rows,
            .column = p * width,
            .columns = std::min(width, w.n() - p * width),
            .values = values});
    }
  }
}

namespace {

void use(const Tile& tile, float* y, int64_t stride, TileUse how, float factor = 1,
         Activation activation = Activation::linear) {
  HWY_DYNAMIC_DISPATCH(use_tile)
  (tile.values, tile.rows, tile.columns, y + tile.row * stride + tile.column, stride, how, factor,
   activation);
}

}  // namespace

void store_tile(const Tile& tile, float* y, int64_t stride) {
  use(tile, y, stride, TileUse::store);
}
void add_tile(const Tile& tile, float* y, int64_t stride) { use(tile, y, stride, TileUse::add); }
void scale_tile(const Tile& tile, float* y, int64_t stride, float factor) {
  use(tile, y, stride, TileUse::scale, factor);
}
void activate_tile(const Tile& tile, Activation activation, float* y, int64_t stride) {
  use(tile, y, stride, TileUse::activate, 1, activation);
}
void multiply_activated_tile(const Tile& tile, Activation activation, float* y, int64_t stride) {
  use(tile, y, stride, TileUse::multiply_activated, 1, activation);
}

}  // namespace quintet
#endif
