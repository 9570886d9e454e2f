#pragma once
// The products of an MLP with its activations, of one matrix for all rows or of packed rows by expert
// (moe/experts.h), as one launch over tiles of all experts. How many rows an expert has is known on
// the device alone: each warp finds its tile by a prefix sum over the experts' tiles, so that an
// expert costs what its rows cost and one without rows nothing. A tile is computed by one block in a
// fixed order: the same bits every time.
//
//   kProduct     y = dropout(act0(x w_0)), x w_0 in h0 if that is not null
//   kGated       y = dropout(act0(x w_0) act1(x w_1)), the products in h0 and h1
//   kTransposed  y = x_0 w_0^T, plus x_1 w_1^T if w[1] is not null
//   kHiddenGrad  with dy = dropout(x w_0^T): d0 = dy act0'(h0) act1(h1), d1 = dy act0(h0) act1'(h1), and y
//                from h0 and h1 as above; h1 null: there is no second factor
//   kWeights     dw = x^T y by expert, y being w[0]; added to what is there if `adds`
//
// Rows that no expert has become 0.

#include "kernels/mlp/hidden.cuh"

namespace quintet::QT_GPU::mlp {

enum class Kind { kProduct, kGated, kTransposed, kHiddenGrad, kWeights };

template <typename T>
struct Grouped {
  const int32_t* offsets = nullptr;  // [experts + 1]; null: one expert has all rows
  int experts = 1, rows = 0;
  int depth = 0, columns = 0;  // x: [rows, depth]; y: [rows, columns]
  const T* x[2] = {};
  const T* w[2] = {};  // [experts, depth, columns]; transposed: [experts, columns, depth]
  T *y = nullptr, *d0 = nullptr, *d1 = nullptr;
  T *h0 = nullptr, *h1 = nullptr;  // kHiddenGrad reads them
  float* dw = nullptr;             // [experts, depth, columns]
  bool adds = false;
  Gate gate{};
  DropoutMask mask{};  // without words nothing is dropped

  __host__ __device__ int pairs() const { return w[1] != nullptr ? 2 : 1; }
};

/// Any sizes and addresses; float32 products and sums.
template <typename T>
void grouped_general(Kind kind, const Grouped<T>& p, Stream stream);
/// mma.sync and wgmma; only what suits_tensor_cores().
void grouped_mma(Kind kind, const Grouped<bf16>& p, Stream stream);
void grouped_wgmma(Kind kind, const Grouped<bf16>& p, Stream stream);

/// Depth and columns are multiples of 8, arrays lie at multiples of 16 bytes.
inline bool suits_tensor_cores(const Grouped<bf16>& p) {
  return p.depth > 0 && p.depth % 8 == 0 && p.columns % 8 == 0 &&
         are_aligned({p.x[0], p.x[1], p.w[0], p.w[1], p.y, p.d0, p.d1, p.h0, p.h1, p.dw});
}

/// By tensor cores where sizes and addresses suit them.
template <typename T>
void grouped_product(Kind kind, const Grouped<T>& p, Stream stream) {
  if (p.rows == 0 || p.columns == 0) return;
  if constexpr (std::is_same_v<T, bf16>) {
    if (suits_tensor_cores(p))
      return (simt::device().sm == 90 ? grouped_wgmma : grouped_mma)(kind, p, stream);
  }
  grouped_general(kind, p, stream);
}

/// Calls body(std::integral_constant<Kind, kind>).
template <typename Body>
void for_kind(Kind kind, const Body& body) {
  switch (kind) {
    case Kind::kProduct:
      return body(std::integral_constant<Kind, Kind::kProduct>{});
    case Kind::kGated:
      return body(std::integral_constant<Kind, Kind::kGated>{});
    case Kind::kTransposed:
      return body(std::integral_constant<Kind, Kind::kTransposed>{});
    case Kind::kHiddenGrad:
      return body(std::integral_constant<Kind, Kind::kHiddenGrad>{});
    case Kind::kWeights:
      return body(std::integral_constant<Kind, Kind::kWeights>{});
  }
}

/// Whether a row of weights has the terms of a column of the result.
template <Kind kKind>
inline constexpr bool kIsTransposed = kKind == Kind::kTransposed || kKind == Kind::kHiddenGrad;

/// Matrices that share x and a tile of columns.
template <Kind kKind>
inline constexpr int kBranches = kKind == Kind::kGated ? 2 : 1;

/// Rows [row, row_end) and columns from `column` on of a result: of y, or of an expert's dw; sums over
/// terms [begin, end): columns of x, or the expert's rows.
struct Tile {
  int expert;  // == experts: rows that none has
  int row, row_end, column;
  int begin, end;
};

/// Finds the n-th tile of kRows x kColumns, for growing n. Called by whole warps.
template <Kind kKind, int kRows, int kColumns>
class TileWalk {
 public:
  template <typename T>
  __device__ explicit TileWalk(const Grouped<T>& p)
      : offsets_(p.offsets),
        experts_(p.experts),
        rows_(p.rows),
        depth_(p.depth),
        across_((p.columns + kColumns - 1) / kColumns),
        down_((p.depth + kRows - 1) / kRows) {}

  __device__ bool find(int n, Tile& tile) {
    if constexpr (kKind == Kind::kWeights) {
      const int inner = n % (across_ * down_), e = n / (across_ * down_);
      if (e >= experts_) return false;
      tile = {e,
              inner % down_ * kRows,
              depth_,
              inner / down_ * kColumns,
              first_row(e),
              first_row(e + 1)};
      return true;
    } else {
      const int lane = static_cast<int>(threadIdx.x % 32);
      for (; first_ <= experts_; first_ += 32) {
        const int e = first_ + lane;
        const int begin = e <= experts_ ? first_row(e) : rows_;
        const int end = e < experts_ ? first_row(e + 1) : rows_;
        const int tiles = (end - begin + kRows - 1) / kRows * across_;
        int until = tiles;  // tiles of this lane's expert and of those before it
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
          const int before = __shfl_up_sync(kWholeWarp, until, distance);
          if (lane >= distance) until += before;
        }
        const unsigned behind = __ballot_sync(kWholeWarp, n - before_ < until);
        if (behind != 0) {
          const int owner = __ffs(static_cast<int>(behind)) - 1;
          const int down = __shfl_sync(kWholeWarp, (end - begin + kRows - 1) / kRows, owner);
          const int inner = n - before_ - __shfl_sync(kWholeWarp, until - tiles, owner);
          // Neighbouring blocks share columns of the weights.
          tile = {first_ + owner,
                  __shfl_sync(kWholeWarp, begin, owner) + inner % down * kRows,
                  __shfl_sync(kWholeWarp, end, owner),
                  inner / down * kColumns,
                  0,
                  depth_};
          return true;
        }
        before_ += __shfl_sync(kWholeWarp, until, 31);
      }
      return false;
    }
  }
  /// At least the number of tiles.
  template <typename T>
  static int most(const Grouped<T>& p) {
    const int across = (p.columns + kColumns - 1) / kColumns;
    if (kKind == Kind::kWeights) return p.experts * ((p.depth + kRows - 1) / kRows) * across;
    return (p.rows / kRows + p.experts + 1) * across;
  }

 private:
  __device__ int first_row(int e) const { return offsets_ != nullptr ? offsets_[e] : e * rows_; }

  const int32_t* offsets_;
  int experts_, rows_, depth_;
  int across_, down_;
  int first_ = 0, before_ = 0;  // the expert of lane 0; tiles before its
};

/// Steps of kTerms terms that a tile's sums take.
template <Kind kKind, int kTerms, typename T>
__device__ inline int steps_of(const Grouped<T>& p, const Tile& tile) {
  if (kKind != Kind::kWeights && tile.expert == p.experts) return 0;
  const int steps = (tile.end - tile.begin + kTerms - 1) / kTerms;
  return kKind == Kind::kTransposed ? p.pairs() * steps : steps;
}

/// Activations that the compiler knows, and those of a Gate.
template <Activation kAct0, Activation kAct1>
struct KnownGate {
  template <bool kFast>
  __device__ static KnownActivation<kAct0, kFast> act0(const Gate&) {
    return {};
  }
  template <bool kFast>
  __device__ static KnownActivation<kAct1, kFast> act1(const Gate&) {
    return {};
  }
};
struct AnyGate {
  template <bool kFast>
  __device__ static AnyActivation<kFast> act0(const Gate& gate) {
    return {gate.act0};
  }
  template <bool kFast>
  __device__ static AnyActivation<kFast> act1(const Gate& gate) {
    return {gate.act1};
  }
};

/// Stores what becomes of sums of kCount neighbouring columns that are there, of a row that is there;
/// h0 and h1: theirs, for kHiddenGrad.
template <Kind kKind, typename G, int kCount, typename T>
__device__ inline void put(const Grouped<T>& p, const Tile& tile, int row, int column,
                           const float (&sums)[kBranches<kKind>][kCount], float (&h0)[kCount],
                           float (&h1)[kCount]) {
  if constexpr (kKind == Kind::kWeights) {
    if (p.adds && tile.begin == tile.end) return;
    float* const to = p.dw + (int64_t{tile.expert} * p.depth + row) * p.columns + column;
    float dw[kCount], before[kCount] = {};
    if (p.adds) load<kCount>(to, before);
#pragma unroll
    for (int i = 0; i < kCount; ++i) dw[i] = p.adds ? before[i] + sums[0][i] : sums[0][i];
    store<kCount>(to, dw);
  } else {
    constexpr bool kFast = !std::is_same_v<T, float>;
    constexpr int kLast = kBranches<kKind> - 1;
    const int64_t at = int64_t{row} * p.columns + column;
    const auto act0 = G::template act0<kFast>(p.gate);
    const auto act1 = G::template act1<kFast>(p.gate);
    const uint32_t kept = p.mask.words == nullptr ? 0 : p.mask.shared_bits(row, column);
    float y[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) y[i] = sums[0][i];
    if constexpr (kKind == Kind::kHiddenGrad) {
      hidden_grad(act0, act1, p.mask, kept, p.h1 != nullptr, h0, h1, y);
      store<kCount>(p.d0 + at, h0);
      if (p.h1 != nullptr) store<kCount>(p.d1 + at, h1);
    } else if constexpr (kKind != Kind::kTransposed) {
      if (p.h0 != nullptr) store<kCount>(p.h0 + at, sums[0]);
      if (kKind == Kind::kGated && p.h1 != nullptr) store<kCount>(p.h1 + at, sums[kLast]);
      hidden(act0, act1, p.mask, kept, kKind == Kind::kGated, sums[kLast], y);
    }
    store<kCount>(p.y + at, y);
  }
}

/// Calls body(std::integral_constant<Kind, kind>, gate): a KnownGate of the pairs that models of T5's
/// family have, AnyGate of others.
template <typename Body>
void for_kernel(Kind kind, const Gate& gate, const Body& body) {
  using enum Activation;
  for_kind(kind, [&](auto kKind) {
    constexpr bool kProduct = kKind() == Kind::kProduct;
    if constexpr (kKind() == Kind::kTransposed || kKind() == Kind::kWeights) {
      body(kKind, KnownGate<linear, linear>{});
    } else {
      if (gate.act1 != linear) return body(kKind, AnyGate{});
      if constexpr (kProduct) {
        if (gate.act0 == linear) return body(kKind, KnownGate<linear, linear>{});
      } else {
        if (gate.act0 == gelu) return body(kKind, KnownGate<gelu, linear>{});
        if (gate.act0 == silu) return body(kKind, KnownGate<silu, linear>{});
      }
      if constexpr (kKind() != Kind::kGated) {
        if (gate.act0 == relu) return body(kKind, KnownGate<relu, linear>{});
      }
      body(kKind, AnyGate{});
    }
  });
}

// How tensor-core kernels store a tile: the sums, which lie in pairs of columns all over a warp, go
// through shared memory, from where a lane takes 16 bytes of a row of the result at a time. A loop
// does this, so that activations are in the code once.

/// Columns that a lane takes at a time, its unit, and lanes that share a row of 64.
template <Kind kKind>
inline constexpr int kUnit = kKind == Kind::kWeights ? 4 : 8;
template <Kind kKind, int kColumns = 64>
inline constexpr uint32_t kUnitsAcross = kColumns / kUnit<kKind>;

/// Where the sum of a row and column lies in a warp's rows of 64 floats. Both the pairs that 16 lanes
/// write and the 16 bytes that each of 8 reads lie in different banks. Linear in the bits of both:
/// at(r ^ s, c ^ d) = at(r, c) ^ at(s, d).
__device__ inline uint32_t staged_at(uint32_t row, uint32_t column) {
  return (row * 64) ^ column ^ (row % 8 * 8) ^ (row & 4) ^ (column / 8 & 4);
}
/// Where a lane's first pair of columns of a product's 8 x 8 sums lies.
__device__ inline uint32_t pair_at(uint32_t lane) { return staged_at(lane / 4, 2 * (lane % 4)); }
/// A unit of them.
template <int kCount>
__device__ inline void read_staged(simt::Shared<float> staged, uint32_t row, uint32_t column,
                                   float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    float four[4];
    load(&staged[staged_at(row, column + i)], four);
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[i + j] = four[j];
  }
}

/// Stores a lane's kUnits units: place(n) -> [row, column], read(n, sums), which is called for all
/// units. h0 and h1 of the next unit are on their way while one is computed.
template <Kind kKind, typename G, uint32_t kUnits, typename Place, typename Read>
__device__ inline void put_units(const Grouped<bf16>& p, const Tile& tile, const Place& place,
                                 const Read& read) {
  constexpr int kCount = kUnit<kKind>;
  constexpr bool kAhead = !std::is_same_v<G, AnyGate>;  // it has no registers left for them
  const auto is_there = [&](int row, int column) {
    return row < tile.row_end && column < p.columns;
  };
  uint32_t h[2][kCount / 2] = {};
  const auto fetch = [&](uint32_t n) {
    if constexpr (kKind == Kind::kHiddenGrad) {
      const auto [row, column] = place(n);
      if (n == kUnits || !is_there(row, column)) return;
      const int64_t at = int64_t{row} * p.columns + column;
      load_words(p.h0 + at, h[0]);
      if (p.h1 != nullptr) load_words(p.h1 + at, h[1]);
    }
  };
  fetch(0);
#pragma unroll 1
  for (uint32_t n = 0; n < kUnits; ++n) {
    float sums[kBranches<kKind>][kCount], h0[kCount], h1[kCount];
    unpack_words<bf16>(h[0], h0), unpack_words<bf16>(h[1], h1);
    if (kAhead) fetch(n + 1);
    read(n, sums);
    const auto [row, column] = place(n);
    if (is_there(row, column)) put<kKind, G>(p, tile, row, column, sums, h0, h1);
    if (!kAhead) fetch(n + 1);
  }
}

}  // namespace quintet::QT_GPU::mlp
