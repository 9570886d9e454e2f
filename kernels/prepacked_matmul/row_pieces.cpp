#include "kernels/prepacked_matmul/row_pieces.h"

#include <algorithm>

#include "kernels/cpu/amx.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/prepacked_matmul/row_pieces.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/prepacked_matmul/row_scale-inl.h"

#ifndef QUINTET_ROW_PIECES_ONCE
#define QUINTET_ROW_PIECES_ONCE
namespace quintet {
/// Columns of a panel that goes through tiles.
inline constexpr int64_t kTiledWidth = 2 * amx::kTileRows;
/// Of three digits from -128 to 127 those of 8355711 are the largest; a little less, so that no rounding makes a fourth.
inline constexpr float kLargestOfDigits = 8355584;
/// Most numbers of a tile's row: int8's, a byte each.
inline constexpr int64_t kMostNumbers = amx::kRowBytes;

/// Where the pieces of a row go.
struct RowPlace {
  std::byte* out = nullptr;
  int64_t piece_bytes = 0, step_bytes = 0;  // from one to the next
};
}  // namespace quintet
#endif

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, 16>;
using I = hn::RebindToSigned<F>;
using U = hn::RebindToUnsigned<F>;

/// Calls split(numbers, out) for each step of a row. The last begins early enough to have as many numbers of the panel as
/// the others; those that the one before had are zeros in it.
template <class Split>
HWY_INLINE void each_step(const float* x, int64_t k, int64_t numbers, RowPlace place,
                          const Split& split) {
  for (int64_t i = 0; i < k; i += numbers, place.out += place.step_bytes) {
    if (i + numbers <= k) {
      split(x + i, place.out);
      continue;
    }
    HWY_ALIGN float last[kMostNumbers] = {};
    std::copy(x + i, x + k, last + (i - std::min(i, padded_k(k) - numbers)));
    split(last, place.out);
  }
}

/// Highest bits first: what is left of a number is a number, exactly.
void split_to_bf16(const float* x, int64_t k, RowPlace place) {
  const F d;
  const U du;
  const hn::Rebind<uint16_t, F> narrow;
  constexpr int64_t kNumbers = 32;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  each_step(x, k, kNumbers, place, [&](const float* from, std::byte* to) HWY_ATTR {
    for (int64_t c = 0; c < kNumbers; c += lanes) {
      auto left = hn::LoadU(d, from + c);
      for (int64_t piece = 0; piece < 3; ++piece) {
        const auto bits = hn::And(hn::BitCast(du, left), hn::Set(du, 0xffff0000u));
        hn::StoreU(hn::TruncateTo(narrow, hn::ShiftRight<16>(bits)), narrow,
                   reinterpret_cast<uint16_t*>(to + piece * place.piece_bytes) + c);
        left = hn::Sub(left, hn::BitCast(d, bits));
      }
    }
  });
}

/// In units of the scale as whole numbers, whose digits to base 256, highest first, are the pieces.
template <int64_t kPieces>
void split_to_digits(const float* x, int64_t k, RowPlace place, float* scale) {
  const F d;
  const U du;
  const hn::Rebind<uint8_t, F> narrow;
  constexpr int64_t kNumbers = 64;
  constexpr uint32_t kHalves = kPieces == 1 ? 0x80 : 0x808080;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  *scale = largest_magnitude(x, k) * (1.0f / (kPieces == 1 ? 127.0f : kLargestOfDigits));
  const auto by = hn::Set(d, 1.0f / *scale);
  const auto halves = hn::Set(du, kHalves);
  each_step(x, k, kNumbers, place, [&](const float* from, std::byte* to) HWY_ATTR {
    for (int64_t c = 0; c < kNumbers; c += lanes) {
      const auto whole = hn::BitCast(du, hn::NearestInt(hn::Mul(hn::LoadU(d, from + c), by)));
      // With a half of the base added to each digit they are the bytes of the sum.
      auto digits = hn::Xor(hn::Add(whole, halves), halves);
      for (int64_t piece = kPieces - 1; piece >= 0; --piece) {
        hn::StoreU(hn::TruncateTo(narrow, digits), narrow,
                   reinterpret_cast<uint8_t*>(to + piece * place.piece_bytes) + c);
        digits = hn::ShiftRight<8>(digits);
      }
    }
  });
}

void split_row(WeightType type, const float* x, int64_t k, const RowPlace& place, float* scale) {
  if (type == WeightType::bf16) return split_to_bf16(x, k, place);
  return type == WeightType::int8 ? split_to_digits<3>(x, k, place, scale)
                                  : split_to_digits<1>(x, k, place, scale);
}

/// tile [rows, kTiledWidth] of the sums of pieces, [pieces, group_rows, kTiledWidth].
void sum_pieces(WeightType type, int64_t rows, int64_t group_rows, const TileInput& in,
                const float* sums, float* tile) {
  const F d;
  const I di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t piece = group_rows * kTiledWidth;
  const auto value = [&](const float* at)
                         HWY_ATTR { return hn::ConvertTo(d, hn::BitCast(di, hn::Load(d, at))); };
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < kTiledWidth; c += lanes) {
      const float* at = sums + r * kTiledWidth + c;
      float* to = tile + r * kTiledWidth + c;
      if (type == WeightType::bf16) {
        const auto lower = hn::Add(hn::Load(d, at + piece), hn::Load(d, at + 2 * piece));
        hn::Store(hn::Add(hn::Load(d, at), lower), d, to);
        continue;
      }
      auto sum = value(at);
      if (type == WeightType::int8) {
        const auto base = hn::Set(d, 256.0f);
        sum = hn::MulAdd(sum, hn::Mul(base, base),
                         hn::MulAdd(value(at + piece), base, value(at + 2 * piece)));
      }
      hn::Store(hn::Mul(hn::Mul(sum, hn::LoadU(d, in.w_scales + c)), hn::Set(d, in.x_scales[r])), d,
                to);
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "runtime/base/check.h"

namespace quintet {

HWY_EXPORT(split_row);
HWY_EXPORT(sum_pieces);

int64_t PieceForm::group_rows() const { return 2 * amx::kTileRows / pieces; }

std::optional<PieceForm> piece_form(WeightType type, int64_t k) {
  if (amx::source() == amx::Source::none || panel_width() != kTiledWidth ||
      padded_k(k) * weight_bytes(type) < amx::kRowBytes)
    return std::nullopt;
  if (type == WeightType::bf16) return PieceForm{3, 32};
  if (type == WeightType::int8 && k <= kMostInt8Depth) return PieceForm{3, 64};
  if (type == WeightType::int8_dynamic) return PieceForm{1, 64};
  return std::nullopt;
}

void RowPieces::make(const float* x, int64_t stride, int64_t k, const RowGroups& groups,
                     WeightType type) {
  const PieceForm form = *piece_form(type, k);
  const int64_t steps = (k + form.numbers - 1) / form.numbers;
  lines_of_group_ = steps * form.pieces * groups.most();
  lines_.resize(static_cast<size_t>(groups.count * lines_of_group_));
  scales_.resize(static_cast<size_t>(groups.rows));
  for (int64_t g = 0; g < groups.count; ++g)
    for (int64_t r = groups.first(g); r < groups.first(g + 1); ++r) {
      Line& first = lines_[static_cast<size_t>(g * lines_of_group_ + r - groups.first(g))];
      const RowPlace place{first.data(), groups.most() * amx::kRowBytes,
                           form.pieces * groups.most() * amx::kRowBytes};
      HWY_DYNAMIC_DISPATCH(split_row)
      (type, x + r * stride, k, place, &scales_[static_cast<size_t>(r)]);
    }
}

namespace {

/// sums [piece_rows, kTiledWidth] of 32 bits = the pieces times a panel.
template <class Source, class Number, bool kTwo>
void multiply_tiles(TileInput in, int64_t piece_rows, float* sums) {
  using T = Source;
  constexpr int64_t kNumbers = amx::kRowBytes / static_cast<int64_t>(sizeof(Number)),
                    kColumnBytes = 4, kStride = kTiledWidth * kColumnBytes;
  T::template zero<0>();
  T::template zero<1>();
  if constexpr (kTwo) {
    T::template zero<2>();
    T::template zero<3>();
  }
  for (int64_t i = 0; i < in.k; i += kNumbers) {
    // A quarter of the step's: many at once would keep tiles from being loaded meanwhile.
    const auto fetch = [&](int64_t quarter) {
      const int64_t from = i + quarter * kNumbers / 4;
      in.ahead.fetch(kNumbers / 16 * in.lines);
      for (int64_t at = from; in.later != nullptr && at < std::min(from + kNumbers / 4, in.k);
           at += 4)
        in.fetch_later();
    };
    const std::byte* w =
        in.w + std::min(i, in.k - kNumbers) * kTiledWidth * static_cast<int64_t>(sizeof(Number));
    T::template load<6>(w, kStride);
    fetch(0);
    T::template load<7>(w + kStride / 2, kStride);
    fetch(1);
    T::template load<4>(in.pieces, amx::kRowBytes);
    T::template add_products<Number, 0, 4, 6>();
    fetch(2);
    T::template add_products<Number, 1, 4, 7>();
    if constexpr (kTwo)
      T::template load<5>(in.pieces + amx::kTileRows * amx::kRowBytes, amx::kRowBytes);
    fetch(3);
    if constexpr (kTwo) {
      T::template add_products<Number, 2, 5, 6>();
      T::template add_products<Number, 3, 5, 7>();
    }
    in.pieces += piece_rows * amx::kRowBytes;
  }
  T::template store<0>(sums, kStride);
  T::template store<1>(sums + amx::kTileRows, kStride);
  if constexpr (kTwo) {
    float* second = sums + amx::kTileRows * kTiledWidth;
    T::template store<2>(second, kStride);
    T::template store<3>(second + amx::kTileRows, kStride);
  }
}

template <class Source>
void multiply_tiles(WeightType type, int64_t piece_rows, const TileInput& in, float* sums) {
  const bool two = piece_rows > amx::kTileRows;
  if (type == WeightType::bf16)
    return two ? multiply_tiles<Source, bfloat16, true>(in, piece_rows, sums)
               : multiply_tiles<Source, bfloat16, false>(in, piece_rows, sums);
  return two ? multiply_tiles<Source, int8_t, true>(in, piece_rows, sums)
             : multiply_tiles<Source, int8_t, false>(in, piece_rows, sums);
}

}  // namespace

void multiply_pieces(WeightType type, const PieceForm& form, int64_t rows, int64_t group_rows,
                     const TileInput& in, float* tile) {
  alignas(64) float sums[2 * amx::kTileRows * kTiledWidth];
  const int64_t piece_rows = form.pieces * group_rows;
  QT_ASSERT(piece_rows <= 2 * amx::kTileRows);
  if (amx::source() == amx::Source::emulated)
    multiply_tiles<amx::Emulated>(type, piece_rows, in, sums);
#if defined(__x86_64__)
  else
    multiply_tiles<amx::Cpu>(type, piece_rows, in, sums);
#endif
  HWY_DYNAMIC_DISPATCH(sum_pieces)(type, rows, group_rows, in, sums, tile);
}

}  // namespace quintet
#endif
