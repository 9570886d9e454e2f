#include "kernels/prepacked_matmul/prepacked_matmul.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "kernels/cpu/amx.h"
#include "kernels/prepacked_matmul/fetch_queue.h"
#include "kernels/prepacked_matmul/row_pieces.h"
#include "kernels/prepacked_matmul/tile_input.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/prepacked_matmul/prepacked_matmul.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/float8-inl.h"
#include "kernels/cpu/normal-inl.h"

#ifndef QUINTET_PACKED_MATMUL_ONCE
#define QUINTET_PACKED_MATMUL_ONCE
namespace quintet {
/// Most values of a group's tile on any instruction set: 14 rows of such a panel, or 32 of AMX's 32 columns.
inline constexpr int kMostTileValues = 32 * 32;
static_assert(kMostTileValues >= 14 * kMostPanelWidth);
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
// the 32 registers of AVX-512 and 6 the 16 of AVX2 and SSE4. Up to kPairRows rows go through two panels at a time, which
// takes twice the accumulators: those of one panel are too few to hide how long an addition takes.
#if HWY_TARGET <= HWY_AVX3
constexpr int kGroupRows = 14, kPairRows = 6;
#else
constexpr int kGroupRows = 6, kPairRows = 2;
#endif

int64_t width() { return static_cast<int64_t>(2 * hn::Lanes(F())); }
/// So many rows and up to twice kPairRows are two groups that go through two panels at a time where weights have fewer
/// bits: with bf16 and int8 that is 4 and 6 % faster than one group and one panel. Float32 would be read twice from the
/// second-level cache while memory fills it.
constexpr int64_t kTwoGroups = 8;
int64_t groups_of(int64_t rows, bool narrow) {
  const bool two = narrow && rows >= kTwoGroups && rows <= 2 * kPairRows;
  return two ? 2 : (rows + kGroupRows - 1) / kGroupRows;
}
/// Of a group.
int64_t panels_at_once(int64_t rows) { return rows <= kPairRows ? 2 : 1; }

using I = hn::RebindToSigned<F>;
using VI = hn::Vec<I>;

/// A byte of each lane in the lane's highest place, others below it.
HWY_INLINE VI byte_in_high_place(VI quad, size_t byte) {
  return byte == 0   ? hn::ShiftLeft<24>(quad)
         : byte == 1 ? hn::ShiftLeft<16>(quad)
         : byte == 2 ? hn::ShiftLeft<8>(quad)
                     : quad;
}

/// The same with zeros below it.
HWY_INLINE VI byte_above_zeros(const int32_t* quads, size_t byte) {
  const I di;
  const VI highest = hn::Set(di, static_cast<int32_t>(0xff000000u));
#if HWY_TARGET <= HWY_AVX3
  // Loaded there, which leaves the ports that multiply alone. What lies before the quads is not read.
  const hn::Repartition<uint8_t, I> bytes;
  const auto* from = reinterpret_cast<const uint8_t*>(quads) + byte - 3;
  return hn::BitCast(di, hn::MaskedLoad(hn::MaskFromVec(hn::BitCast(bytes, highest)), bytes, from));
#else
  return hn::And(byte_in_high_place(hn::Load(di, quads), byte), highest);
#endif
}

/// The weights of one of four steps, of one vector of columns, as float32 (int8: times 2^24): made when the step needs
/// them, since registers do not hold those of four beside the sums.
template <WeightType kType>
HWY_INLINE V weights_of_step(const std::byte* w, size_t vector, size_t step) {
  const F d;
  const I di;
  const size_t lanes = hn::Lanes(d);
  if constexpr (kType == WeightType::f32)
    return hn::Load(d, reinterpret_cast<const float*>(w) + (2 * step + vector) * lanes);
  const auto* from = reinterpret_cast<const int32_t*>(w) + vector * lanes;
  if constexpr (kType == WeightType::bf16) {
    const VI pair = hn::Load(di, from + step / 2 * 2 * lanes);
    return hn::BitCast(
        d, step % 2 == 0 ? hn::ShiftLeft<16>(pair) : hn::And(pair, hn::Set(di, ~0xffff)));
  }
  if constexpr (kType == WeightType::int8) return hn::ConvertTo(d, byte_above_zeros(from, step));
  return float8_in_high_byte(di, byte_in_high_place(hn::Load(di, from), step));
}

/// What int8's scales take back.
constexpr float factor_of_weights(WeightType type) {
  return type == WeightType::int8 ? 0x1p-24f : 1.0f;
}

/// tile [kPanels, kRows, 2 vectors] = x^T w for x [k, kRows] and w [kPanels, k, 2 vectors].
template <WeightType kType, int kRows, int kPanels>
void tile_product(TileInput in, float* HWY_RESTRICT tile) {
  const F d;
  const size_t lanes = hn::Lanes(d);
  V sum[kPanels][kRows][2];
#pragma GCC unroll 2
  for (auto& of_panel : sum)
#pragma GCC unroll 14
    for (auto& of_row : of_panel) of_row[0] = of_row[1] = hn::Zero(d);
  for (int64_t i = 0; i < in.k; i += 4) {
    in.fetch();
#pragma GCC unroll 4
    for (size_t step = 0; step < 4; ++step) {
#pragma GCC unroll 2
      for (size_t p = 0; p < kPanels; ++p) {
        const std::byte* w = in.panel(p);
        const V w0 = weights_of_step<kType>(w, 0, step), w1 = weights_of_step<kType>(w, 1, step);
#pragma GCC unroll 14
        for (size_t r = 0; r < kRows; ++r) {
          const V xr = hn::Set(d, in.x[step * kRows + r]);
          sum[p][r][0] = hn::MulAdd(xr, w0, sum[p][r][0]);
          sum[p][r][1] = hn::MulAdd(xr, w1, sum[p][r][1]);
        }
      }
    }
    in.x += 4 * kRows;
    in.w += static_cast<int64_t>(8 * lanes) * weight_bytes(kType);
  }
  const V factor = hn::Set(d, factor_of_weights(kType));
  const auto scale = [&](size_t vector) HWY_ATTR {
    if constexpr (weight_bytes(kType) == 1)
      return hn::Mul(factor, hn::LoadU(d, in.w_scales + vector * lanes));
    else
      return factor;
  };
#pragma GCC unroll 2
  for (size_t p = 0; p < kPanels; ++p) {
    const V s0 = scale(2 * p), s1 = scale(2 * p + 1);
#pragma GCC unroll 14
    for (size_t r = 0; r < kRows; ++r) {
      float* row = tile + (p * kRows + r) * 2 * lanes;
      hn::Store(hn::Mul(sum[p][r][0], s0), d, row);
      hn::Store(hn::Mul(sum[p][r][1], s1), d, row + lanes);
    }
  }
}

/// sum + products of four bytes a lane, unsigned x and signed w.
template <bool kVnni>
HWY_INLINE VI add_products(VI sum, VI x, VI w) {
  const I di;
#if HWY_TARGET == HWY_AVX3
  // Highway 1.0 has no name for it, and intrinsics cannot be inlined into code for AVX-512 alone.
  if constexpr (kVnni) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "v"(w.raw));
    return sum;
  }
#endif
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  // Bytes 0 and 2, then 1 and 3, of a lane as two int16; their products are added in pairs.
  const hn::RepartitionToNarrow<I> dn;
  const auto even_x = hn::BitCast(dn, hn::And(x, hn::Set(di, 0x00ff00ff)));
  const auto odd_x = hn::BitCast(dn, hn::And(hn::ShiftRight<8>(x), hn::Set(di, 0x00ff00ff)));
  const auto even_w = hn::ShiftRight<8>(hn::ShiftLeft<8>(hn::BitCast(dn, w)));
  const auto odd_w = hn::ShiftRight<8>(hn::BitCast(dn, w));
  VI unused = hn::Zero(di);
  sum = hn::ReorderWidenMulAccumulate(di, even_x, even_w, sum, unused);
  return hn::ReorderWidenMulAccumulate(di, odd_x, odd_w, sum, unused);
#else
  const VI byte = hn::Set(di, 0xff);
  sum = hn::Add(sum, hn::Mul(hn::And(x, byte), hn::ShiftRight<24>(hn::ShiftLeft<24>(w))));
  sum = hn::Add(
      sum, hn::Mul(hn::And(hn::ShiftRight<8>(x), byte), hn::ShiftRight<24>(hn::ShiftLeft<16>(w))));
  sum = hn::Add(
      sum, hn::Mul(hn::And(hn::ShiftRight<16>(x), byte), hn::ShiftRight<24>(hn::ShiftLeft<8>(w))));
  return hn::Add(sum, hn::Mul(hn::And(hn::ShiftRight<24>(x), byte), hn::ShiftRight<24>(w)));
#endif
}

/// The same in 8 bits: x = x_scale (quad - 128).
template <bool kVnni, int kRows, int kPanels>
void tile_product_8(TileInput in, float* HWY_RESTRICT tile) {
  const F d;
  const I di;
  const size_t lanes = hn::Lanes(d);
  VI sum[kPanels][kRows][2];
#pragma GCC unroll 2
  for (auto& of_panel : sum)
#pragma GCC unroll 14
    for (auto& of_row : of_panel) of_row[0] = of_row[1] = hn::Zero(di);
  for (int64_t i = 0; i < in.k; i += 4) {
    in.fetch();
#pragma GCC unroll 2
    for (size_t p = 0; p < kPanels; ++p) {
      const auto* quads = reinterpret_cast<const int32_t*>(in.panel(p));
      const VI w0 = hn::Load(di, quads), w1 = hn::Load(di, quads + lanes);
#pragma GCC unroll 14
      for (size_t r = 0; r < kRows; ++r) {
        const VI xr = hn::Set(di, static_cast<int32_t>(in.quads[r]));
        sum[p][r][0] = add_products<kVnni>(sum[p][r][0], xr, w0);
        sum[p][r][1] = add_products<kVnni>(sum[p][r][1], xr, w1);
      }
    }
    in.quads += kRows;
    in.w += 8 * lanes;
  }
  for (size_t half = 0; half < 2 * kPanels; ++half) {
    const V scale = hn::LoadU(d, in.w_scales + half * lanes);
    const VI offset = hn::LoadU(di, in.w_sums + half * lanes);
    for (size_t r = 0; r < kRows; ++r) {
      const V value = hn::ConvertTo(d, hn::Sub(sum[half / 2][r][half % 2], offset));
      hn::Store(hn::Mul(hn::Mul(value, scale), hn::Set(d, in.x_scales[r])), d,
                tile + ((half / 2 * kRows + r) * 2 + half % 2) * lanes);
    }
  }
}

using TileProduct = void (*)(TileInput, float*);
using TileProducts = std::array<TileProduct, kGroupRows + kPairRows>;

/// Of 1 to kGroupRows rows and a panel, then of 1 to kPairRows rows and two.
template <WeightType kType, bool kVnni, int... kRows, int... kPaired>
constexpr TileProducts tile_products(std::integer_sequence<int, kRows...>,
                                     std::integer_sequence<int, kPaired...>) {
  if constexpr (kType == WeightType::int8_dynamic)
    return {&tile_product_8<kVnni, kRows + 1, 1>..., &tile_product_8<kVnni, kPaired + 1, 2>...};
  else
    return {&tile_product<kType, kRows + 1, 1>..., &tile_product<kType, kPaired + 1, 2>...};
}

template <WeightType kType, bool kVnni = false>
constexpr TileProducts kProducts = tile_products<kType, kVnni>(
    std::make_integer_sequence<int, kGroupRows>(), std::make_integer_sequence<int, kPairRows>());

void multiply_rows(WeightType type, int64_t rows, int64_t panels, const TileInput& in,
                   float* tile) {
  static constexpr const TileProducts* kAll[] = {
      &kProducts<WeightType::f32>, &kProducts<WeightType::bf16>, &kProducts<WeightType::int8>,
      &kProducts<WeightType::int8_dynamic>, &kProducts<WeightType::fp8>};
  auto* products = kAll[static_cast<size_t>(type)];
#if HWY_TARGET == HWY_AVX3
  if (type == WeightType::int8_dynamic && __builtin_cpu_supports("avx512vnni"))
    products = &kProducts<WeightType::int8_dynamic, true>;
#endif
  (*products)[static_cast<size_t>((panels - 1) * kGroupRows + rows - 1)](in, tile);
}

/// y [rows, columns] = value(tile, y), rows of y `stride` apart; fetches as much from `next` on.
template <class Value>
HWY_INLINE void each_vector(const float* tile, int64_t rows, int64_t columns, float* y,
                            const float* next, int64_t stride, const Value& value) {
  const F d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d)), row_width = 2 * lanes;
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = tile + r * row_width;
    float* out = y + r * stride;
    for (int64_t c = 0; c < columns; c += 64 / 4) __builtin_prefetch(next + r * stride + c, 1);
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

template <Activation kActivation>
HWY_INLINE V activate(V x) {
  const F d;
  switch (kActivation) {
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
    case Activation::gelu_erf:
      return hn::Mul(x, normal(d, x).cdf);
  }
  return x;
}

/// y = activation(tile), or y times that.
template <Activation kActivation, bool kMultiply>
void use_activated(const float* tile, int64_t rows, int64_t columns, float* y, const float* next,
                   int64_t stride) {
  each_vector(tile, rows, columns, y, next, stride, [](V t, V old) HWY_ATTR {
    const V a = activate<kActivation>(t);
    return kMultiply ? hn::Mul(old, a) : a;
  });
}

template <bool kMultiply>
void use_activated(const float* tile, int64_t rows, int64_t columns, float* y, const float* next,
                   int64_t stride, Activation activation) {
  switch (activation) {
    case Activation::linear:
      return use_activated<Activation::linear, kMultiply>(tile, rows, columns, y, next, stride);
    case Activation::relu:
      return use_activated<Activation::relu, kMultiply>(tile, rows, columns, y, next, stride);
    case Activation::silu:
      return use_activated<Activation::silu, kMultiply>(tile, rows, columns, y, next, stride);
    case Activation::gelu:
      return use_activated<Activation::gelu, kMultiply>(tile, rows, columns, y, next, stride);
    case Activation::gelu_erf:
      return use_activated<Activation::gelu_erf, kMultiply>(tile, rows, columns, y, next, stride);
  }
}

void use_tile(const float* tile, int64_t rows, int64_t columns, float* y, const float* next,
              int64_t stride, TileUse use, float factor, Activation activation) {
  const F d;
  const V by = hn::Set(d, factor);
  switch (use) {
    case TileUse::store:
      return each_vector(tile, rows, columns, y, next, stride, [](V t, V) HWY_ATTR { return t; });
    case TileUse::add:
      return each_vector(tile, rows, columns, y, next, stride,
                         [](V t, V old) HWY_ATTR { return hn::Add(t, old); });
    case TileUse::scale:
      return each_vector(tile, rows, columns, y, next, stride,
                         [by](V t, V) HWY_ATTR { return hn::Mul(t, by); });
    case TileUse::activate:
      return use_activated<false>(tile, rows, columns, y, next, stride, activation);
    case TileUse::multiply_activated:
      return use_activated<true>(tile, rows, columns, y, next, stride, activation);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <sys/mman.h>

#include "runtime/base/check.h"
#include "runtime/base/memory/huge_pages.h"
#include "runtime/base/memory/out_of_memory.h"

namespace quintet {

HWY_EXPORT(width);
HWY_EXPORT(groups_of);
HWY_EXPORT(panels_at_once);
HWY_EXPORT(multiply_rows);
HWY_EXPORT(use_tile);

int64_t panel_width() {
  static const int64_t value = HWY_DYNAMIC_DISPATCH(width)();
  return value;
}

namespace {

/// Zeroed bytes at an address that is a multiple of a huge page. Mapped, not allocated: a model that goes gives its
/// memory back to the system at once.
std::shared_ptr<float> map_huge(int64_t bytes) {
  const auto mapped = static_cast<size_t>(bytes + kHugePage);
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED)
    throw OutOfMemory(
        fmt::format("generation: cannot get {} MB of memory; use a smaller batch, length or model",
                    mapped >> 20));
  const auto address = reinterpret_cast<uintptr_t>(p);
  const auto aligned = (address + kHugePage - 1) / kHugePage * kHugePage;
  advise_huge_pages(reinterpret_cast<void*>(aligned), bytes);
  return {reinterpret_cast<float*>(aligned), [p, mapped](float*) { munmap(p, mapped); }};
}

}  // namespace

std::shared_ptr<float> HugeArena::allocate(int64_t floats) {
  constexpr int64_t kAlign = 64, kChunk = (32 << 20) / 4;  // floats
  const int64_t wanted = (floats + kAlign - 1) / kAlign * kAlign;
  if (used_ + wanted > size_) {
    constexpr int64_t kPage = kHugePage / 4;
    // Arenas of one small block are many; those of a model's weights soon have large chunks.
    size_ = std::max(std::min(kChunk, 2 * size_), (wanted + kPage - 1) / kPage * kPage);
    chunk_ = map_huge(4 * size_);
    used_ = 0;
  }
  std::shared_ptr<float> block(chunk_, chunk_.get() + used_);
  used_ += wanted;
  return block;
}

namespace {

constexpr const char* kWeightTypes[] = {"f32", "bf16", "int8", "int8_dynamic", "fp8"};

}  // namespace

WeightType weight_type_from_name(const std::string& name) {
  for (size_t i = 0; i < std::size(kWeightTypes); ++i)
    if (name == kWeightTypes[i]) return static_cast<WeightType>(i);
  fail(ExitCode::kUsage, "'{}' is no type of weights; expected {}", name,
       fmt::join(kWeightTypes, ", "));
}

const char* name_of(WeightType type) { return kWeightTypes[static_cast<size_t>(type)]; }

PanelRange PackedMatrix::share(int64_t part, int64_t parts, int64_t unit) const {
  const int64_t units = (panels_ + unit - 1) / unit;
  return {std::min(panels_, units * part / parts * unit),
          std::min(panels_, units * (part + 1) / parts * unit)};
}

RowGroups row_groups(int64_t rows, int64_t k, WeightType weights) {
  if (const auto form = piece_form(weights, k))
    return {rows, (rows + form->group_rows() - 1) / form->group_rows()};
  return {rows, HWY_DYNAMIC_DISPATCH(groups_of)(rows, weights != WeightType::f32)};
}

namespace {

bool fetches_quarters() {
#if HWY_ARCH_X86
  static const bool value = __builtin_cpu_is("intel") != 0;
  return value;
#else
  return false;
#endif
}

/// Of so many rows and a matrix.
int64_t panels_at_once(const RowGroups& groups, const PackedMatrix& w) {
  return piece_form(w.type(), w.k()) ? 1 : HWY_DYNAMIC_DISPATCH(panels_at_once)(groups.most());
}

}  // namespace

NextPanels PackedMatrix::first_panels(PanelRange panels, int64_t rows) const {
  const int64_t count =
      std::min(panels_at_once(row_groups(rows, k_, type_), *this), panels.count());
  if (count <= 0) return {};
  return {panel(panels.begin), count * panel_bytes()};
}

void multiply(const PackedRows& x, const PackedMatrix& w, PanelSource panels,
              const std::function<void(const Tile&)>& done, NextPanels next, FetchQueue* later) {
  QT_ASSERT(x.k() == w.k() && panel_width() <= kMostPanelWidth);
  if (x.rows() == 0) return;
  alignas(128) float values[kMostTileValues];
  const int64_t width = panel_width(), k = padded_k(w.k());
  const RowGroups groups = row_groups(x.rows(), w.k(), w.type());
  const int64_t at_once = panels_at_once(groups, w);
  const auto form = piece_form(w.type(), w.k());
  std::optional<amx::Tiles> tiles;
  if (form) tiles.emplace(form->pieces * groups.most());
  // While panels are computed, group after group, those after them are fetched: each four steps of
  // each group ask for their part of their bytes.
  const int64_t bytes_of_steps = 4 * width * weight_bytes(w.type());
  // What of the next product's panels is more than that comes in the places of `later`, as late as they suffice where no
  // thread takes panels of another.
  FetchQueue rest;
  int64_t rest_panels = 0;
  if (const int64_t more = next.bytes - at_once * w.panel_bytes(); more > 0) {
    rest.add(next.begin + next.bytes - more, more);
    const int64_t places = groups.count * (k / 4) * FetchQueue::kLine;  // bytes, of panels at once
    rest_panels = (more + places - 1) / places * at_once;
  }
  PanelRange then = panels.take(at_once);
  for (PanelRange now = then; now.count() > 0; now = then) {
    then = panels.take(at_once);
    const bool last = then.count() == 0;
    const int64_t p = now.begin, count = now.count(), left = count + then.count() + panels.left();
    FetchQueue* const beside = left <= rest_panels && rest.has_lines() ? &rest : later;
    const std::byte* following = last ? next.begin : w.panel(then.begin);
    const int64_t lines = (count * bytes_of_steps / 64 + groups.count - 1) / groups.count,
                  lines_of_group = k / 4 * lines,
                  lines_ahead = (last ? count : then.count()) * w.panel_bytes() / 64;
    for (int64_t g = 0; g < groups.count; ++g) {
      const int64_t first = groups.first(g), rows = groups.first(g + 1) - first;
      TileInput in = x.input(groups, g, w.type());
      in.w = w.panel(p);
      in.w_scales = w.scales(p);
      in.w_sums = w.sums(p);
      in.panel_bytes = w.panel_bytes();
      in.k = k;
      const int64_t skipped = g * lines_of_group;
      if (following != nullptr && skipped < lines_ahead) {
        in.ahead = FetchAhead(following + skipped * 64,
                              std::min(lines_of_group, lines_ahead - skipped), fetches_quarters());
        in.lines = lines;
      }
      in.later = beside;
      if (form)
        multiply_pieces(w.type(), *form, rows, groups.most(), in, values);
      else
        HWY_DYNAMIC_DISPATCH(multiply_rows)(w.type(), rows, count, in, values);
      const bool last_group = g + 1 == groups.count;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t column = (p + i) * width;
        done({.panel = p + i,
              .row = first,
              .rows = rows,
              .column = column,
              .columns = std::min(width, w.n() - column),
              .values = values + i * rows * width,
              .next_row = !last_group ? first + rows
                          : last      ? first
                                      : 0,
              .next_column = last_group && !last ? (then.begin + i) * width : column});
      }
    }
  }
}

namespace {

void use(const Tile& tile, float* y, int64_t stride, TileUse how, float factor = 1,
         Activation activation = Activation::linear) {
  HWY_DYNAMIC_DISPATCH(use_tile)
  (tile.values, tile.rows, tile.columns, y + tile.row * stride + tile.column,
   y + tile.next_row * stride + tile.next_column, stride, how, factor, activation);
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
