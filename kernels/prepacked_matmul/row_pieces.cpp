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

#if HWY_TARGET != HWY_SCALAR
/// Highest bits first: what is left of a number is a number, exactly.
void split_to_bf16(const float* x, int64_t k, RowPlace place) {
  const F d;
  const U du;
  const hn::Repartition<uint16_t, F> halves;
  constexpr int64_t kNumbers = 32;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  each_step(x, k, kNumbers, place, [&](const float* from, std::byte* to) HWY_ATTR {
    for (int64_t c = 0; c < kNumbers; c += 2 * lanes) {
      auto a = hn::LoadU(d, from + c), b = hn::LoadU(d, from + c + lanes);
      const auto rest = [&](auto left) HWY_ATTR {
        return hn::Sub(left, hn::BitCast(d, hn::And(hn::BitCast(du, left), hn::Set(du, ~0xffffu))));
      };
      for (int64_t piece = 0; piece < 3; ++piece, a = rest(a), b = rest(b))
        hn::StoreU(hn::ConcatOdd(halves, hn::BitCast(halves, b), hn::BitCast(halves, a)), halves,
                   reinterpret_cast<uint16_t*>(to + piece * place.piece_bytes) + c);
    }
  });
}

/// In units of the scale as whole numbers, whose digits to base 256, highest first, are the pieces.
template <int64_t kPieces>
void split_to_digits(const float* x, int64_t k, RowPlace place, float* scale) {
  const F d;
  const U du;
  const hn::Repartition<uint16_t, F> pairs;
  const hn::Repartition<uint8_t, F> bytes;
  constexpr int64_t kNumbers = 64;
  constexpr uint32_t kHalves = kPieces == 1 ? 0x80 : 0x808080;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  *scale = largest_magnitude(x, k) * (1.0f / (kPieces == 1 ? 127.0f : kLargestOfDigits));
  const auto by = hn::Set(d, 1.0f / *scale);
  const auto halves = hn::Set(du, kHalves);
  const auto digits = [&](const float* from) HWY_ATTR {
    const auto whole = hn::BitCast(du, hn::NearestInt(hn::Mul(hn::LoadU(d, from), by)));
    // With a half of the base added to each digit they are the bytes of the sum.
    return hn::BitCast(pairs, hn::Xor(hn::Add(whole, halves), halves));
  };
  each_step(x, k, kNumbers, place, [&](const float* from, std::byte* to) HWY_ATTR {
    for (int64_t c = 0; c < kNumbers; c += 4 * lanes) {
      const auto n0 = digits(from + c), n1 = digits(from + c + lanes);
      const auto n2 = digits(from + c + 2 * lanes), n3 = digits(from + c + 3 * lanes);
      const auto store = [&](auto digit, int64_t piece) HWY_ATTR {
        hn::StoreU(digit, bytes, reinterpret_cast<uint8_t*>(to + piece * place.piece_bytes) + c);
      };
      const auto low0 = hn::BitCast(bytes, hn::ConcatEven(pairs, n1, n0));
      const auto low1 = hn::BitCast(bytes, hn::ConcatEven(pairs, n3, n2));
      store(hn::ConcatEven(bytes, low1, low0), kPieces - 1);
      if constexpr (kPieces == 3) {
        const auto high0 = hn::BitCast(bytes, hn::ConcatOdd(pairs, n1, n0));
        const auto high1 = hn::BitCast(bytes, hn::ConcatOdd(pairs, n3, n2));
        store(hn::ConcatOdd(bytes, low1, low0), 1);
        store(hn::ConcatEven(bytes, high1, high0), 0);
      }
    }
  });
}
#endif

void split_row([[maybe_unused]] WeightType type, [[maybe_unused]] const float* x,
               [[maybe_unused]] int64_t k, [[maybe_unused]] const RowPlace& place,
               [[maybe_unused]] float* scale) {
#if HWY_TARGET != HWY_SCALAR  // whose panels are no tiles
  if (type == WeightType::bf16) return split_to_bf16(x, k, place);
  return type == WeightType::int8 ? split_to_digits<3>(x, k, place, scale)
                                  : split_to_digits<1>(x, k, place, scale);
#endif
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
  if (const auto lines = static_cast<size_t>(groups.count * lines_of_group_); lines > lines_.size())
    lines_.resize(lines);
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

/// sums [piece_rows, kTiledWidth] of 32 bits = the pieces times a panel. Half of the panel's columns at a time, which takes
/// five tiles instead of eight (amx.h says why few). Both halves of some steps come before the next steps, so that the rows
/// stay in the first-level cache.
template <class Source, class Number, bool kTwo>
void multiply_tiles(TileInput in, int64_t piece_rows, float* sums) {
  using T = Source;
  constexpr int64_t kNumbers = amx::kRowBytes / static_cast<int64_t>(sizeof(Number)),
                    kColumnBytes = 4, kStride = kTiledWidth * kColumnBytes, kBlock = 8 * kNumbers;
  for (int64_t block = 0; block < in.k; block += kBlock) {
    const int64_t end = std::min(block + kBlock, in.k);
    const std::byte* first_pieces = in.pieces;
    for (int64_t column = 0; column < kTiledWidth; column += amx::kTileRows) {
      float *to = sums + column, *second = to + amx::kTileRows * kTiledWidth;
      if (block == 0) {
        T::template zero<0>();
        if constexpr (kTwo) T::template zero<1>();
      } else {
        T::template load<0>(to, kStride);
        if constexpr (kTwo) T::template load<1>(second, kStride);
      }
      in.pieces = first_pieces;
      for (int64_t i = block; i < end; i += kNumbers) {
        T::template load_once<2>(
            in.w +
                std::min(i, in.k - kNumbers) * kTiledWidth * static_cast<int64_t>(sizeof(Number)) +
                column * kColumnBytes,
            kStride);
        in.ahead.fetch(kNumbers / 16 * in.lines);
        T::template load<3>(in.pieces, amx::kRowBytes);
        T::template add_products<Number, 0, 3, 2>();
        in.ahead.fetch(kNumbers / 16 * in.lines);
        if (in.later != nullptr) {
          const int64_t quads = std::min(kNumbers, in.k - i) / 4;
          in.fetch_later(column == 0 ? quads / 2 : quads - quads / 2);
        }
        if constexpr (kTwo) {
          T::template load<4>(in.pieces + amx::kTileRows * amx::kRowBytes, amx::kRowBytes);
          T::template add_products<Number, 1, 4, 2>();
        }
        in.pieces += piece_rows * amx::kRowBytes;
      }
      T::template store<0>(to, kStride);
      if constexpr (kTwo) T::template store<1>(second, kStride);
    }
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
