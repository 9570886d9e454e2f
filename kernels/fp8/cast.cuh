#pragma once
// Operands of FP8 products, bytes and transposed bytes, as kernels write them: one that casts what is there, and those of
// other folders that make it (fp8.h: matmul_fp8).

#include "kernels/fp8/fp8.h"
#include "kernels/simt/narrow.cuh"
#include "kernels/vectors/operands_gpu.h"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU {

QT_DEVICE uint32_t magnitude_bits(float x) { return __float_as_uint(x) & 0x7fffffffu; }

/// The largest of the warp's magnitudes, as bits.
QT_DEVICE void add_to_amax(uint32_t most, uint32_t* amax) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const uint32_t other = __shfl_xor_sync(kWholeWarp, most, distance);
    most = most > other ? most : other;
  }
  if (threadIdx.x % 32 == 0) atomicMax(amax, most);
}

/// Numbers times scale in 8 bits; `most` grows to their magnitudes.
template <Float8 kFormat, int kCount>
QT_DEVICE void round_to_bytes(const float (&v)[kCount], float scale, uint32_t (&words)[kCount / 4],
                              uint32_t& most) {
  float scaled[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const uint32_t magnitude = magnitude_bits(v[i]);
    most = most > magnitude ? most : magnitude;
    scaled[i] = v[i] * scale + v[i] * 0.0f;  // an infinity is NaN
  }
#pragma unroll
  for (int w = 0; w < kCount / 4; ++w)
    words[w] = simt::narrow<kFormat>(scaled[4 * w], scaled[4 * w + 1], scaled[4 * w + 2],
                                     scaled[4 * w + 3]);
}

/// An array of [rows, columns], of which a kernel takes kCount numbers from a column on.
template <typename T>
struct Elements {
  const T* x;
  int64_t columns;
  template <int kCount>
  __device__ void operator()(int64_t row, int64_t column, float (&v)[kCount]) const {
    load<kCount>(x + row * columns + column, v);
  }
};

/// What `source` makes, [rows, columns], rounded into `plain`, rows `ld` bytes apart, and into `transposed`
/// [columns, ld_transposed], whose rows end with zeros; either may be null. ld_transposed: rows, up to a multiple of 16.
template <typename Source>
struct Cast {
  Source source;
  int64_t rows, columns;
  uint8_t* plain;
  int64_t ld;
  uint8_t* transposed;
  int64_t ld_transposed;
  const float* scale;
  uint32_t* amax;  // of magnitudes' bits; null: not wanted
};

inline constexpr int kCastRows = 128, kCastColumns = 64;
inline constexpr int kCastUnit = 16;  // numbers of a thread at a time: 16 bytes of results

/// A block's part of it.
template <Float8 kFormat, typename Source>
QT_DEVICE void cast_tile(const Cast<Source>& cast, int64_t first_row, int64_t first_column) {
  constexpr int kUnitsOfRow = kCastColumns / kCastUnit, kWordsOfRow = kCastColumns / 4;
  constexpr int kRowsAtOnce = kBlockThreads / kUnitsOfRow;
  auto tile = simt::shared<uint32_t>(0, kCastRows * kWordsOfRow);
  const float scale = *cast.scale;
  uint32_t most = 0;
#pragma unroll
  for (int begin = 0; begin < kCastRows; begin += kRowsAtOnce) {
    const int row_of_tile = begin + static_cast<int>(threadIdx.x) / kUnitsOfRow;
    const int unit = static_cast<int>(threadIdx.x) % kUnitsOfRow;
    const int64_t row = first_row + row_of_tile, column = first_column + unit * kCastUnit;
    uint32_t words[kCastUnit / 4] = {};
    if (row < cast.rows && column < cast.columns) {
      float v[kCastUnit];
      cast.source(row, column, v);
      round_to_bytes<kFormat>(v, scale, words, most);
      if (cast.plain != nullptr) store_words(cast.plain + row * cast.ld + column, words);
    }
    if (cast.transposed != nullptr) {
#pragma unroll
      for (int w = 0; w < kCastUnit / 4; ++w)
        tile[row_of_tile * kWordsOfRow + unit * (kCastUnit / 4) + w] = words[w];
    }
  }
  if (cast.amax != nullptr) add_to_amax(most, cast.amax);
  if (cast.transposed == nullptr) return;
  __syncthreads();
  // A thread has 32 bytes of a column, a whole sector of memory; neighbours have neighbouring columns.
  const int column = static_cast<int>(threadIdx.x) % kCastColumns;
  if (first_column + column >= cast.columns) return;
  constexpr int kRowsOfThread = kCastRows * kCastColumns / kBlockThreads;
  const int begin = static_cast<int>(threadIdx.x) / kCastColumns * kRowsOfThread;
#pragma unroll
  for (int part = begin; part < begin + kRowsOfThread; part += kCastUnit) {
    if (first_row + part >= cast.ld_transposed) return;
    uint32_t words[kCastUnit / 4] = {};
#pragma unroll
    for (int i = 0; i < kCastUnit; ++i) {
      const uint32_t word = tile[(part + i) * kWordsOfRow + column / 4];
      words[i / 4] |= (word >> (8 * (column % 4)) & 0xffu) << (8 * (i % 4));
    }
    store_words(cast.transposed + (first_column + column) * cast.ld_transposed + first_row + part,
                words);
  }
}

template <typename Source, Float8 kFormat>
__global__ void __launch_bounds__(kBlockThreads)
    cast_tiles(const __grid_constant__ Cast<Source> cast) {
  cast_tile<kFormat>(cast, int64_t{blockIdx.y} * kCastRows, int64_t{blockIdx.x} * kCastColumns);
}

/// Columns of a tile of `tile_rows` rows of bytes, `stride` words apart, an odd number, into `transposed` [columns, rows] from
/// first_row on. tile_rows and rows are multiples of 16, columns one of 4. All threads of a block, after a barrier.
QT_DEVICE void store_columns(simt::Shared<uint32_t> tile, int stride, int tile_rows,
                             int64_t first_row, int64_t rows, int columns, uint8_t* transposed) {
  // Neighbours have the rows of the same columns, so that a sector of memory is written whole.
  const int parts = tile_rows / kCastUnit;
  for (int i = static_cast<int>(threadIdx.x); i < columns / 4 * parts; i += kBlockThreads) {
    const int part = i % parts * kCastUnit, word = i / parts;
    if (first_row + part >= rows) continue;
    uint32_t out[4][kCastUnit / 4];  // of four columns
#pragma unroll
    for (int w = 0; w < kCastUnit / 4; ++w) {
      uint32_t in[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) in[r] = tile[(part + 4 * w + r) * stride + word];
#pragma unroll
      for (int c = 0; c < 4; ++c)
        out[c][w] = (in[0] >> 8 * c & 0xffu) | (in[1] >> 8 * c & 0xffu) << 8 |
                    (in[2] >> 8 * c & 0xffu) << 16 | in[3] >> 8 * c << 24;
    }
#pragma unroll
    for (int c = 0; c < 4; ++c)
      store_words(transposed + (4 * word + c) * rows + first_row + part, out[c]);
  }
}

template <Float8 kFormat, typename Source>
void launch_cast(const Cast<Source>& cast, Stream stream) {
  if (cast.rows == 0 || cast.columns == 0) return;
  const auto tiles = [](int64_t n, int64_t tile) {
    return static_cast<unsigned>((n + tile - 1) / tile);
  };
  simt::launch(cast_tiles<Source, kFormat>,
               {.grid = {tiles(cast.columns, kCastColumns), tiles(cast.rows, kCastRows)},
                .block = kBlockThreads,
                .shared = kCastRows * kCastColumns,
                .stream = stream},
               cast);
}

/// The scaling of layer `layer` among `view`'s, of an op's operand and attribute.
inline Fp8Scaling* scaling_of(const View& view, const Attrs& attrs, const char* op) {
  return reinterpret_cast<Fp8Scaling*>(elements<float>(view, op, "scaling")) +
         attrs.get<int64_t>("layer");
}

/// Where an op that makes x of FP8 layers leaves it in E4M3: [rows, columns], and unless null the transpose.
struct Fp8Bytes {
  uint8_t *plain = nullptr, *transposed = nullptr;
  const float* scale = nullptr;
  uint32_t* amax = nullptr;

  Fp8Bytes() = default;
  Fp8Bytes(const View& bytes, const View& transpose, Fp8Scaling* scaling)
      : plain(bytes.data<uint8_t>()),
        transposed(transpose.absent() ? nullptr : transpose.data<uint8_t>()),
        scale(&scaling->scale[kFp8X]),
        amax(reinterpret_cast<uint32_t*>(&scaling->amax[kFp8X])) {
    QT_ASSERT(bytes.rows() % kCastUnit == 0 && bytes.depth() % kCastUnit == 0);
    QT_ASSERT(are_aligned({plain, transposed}));
  }
};

}  // namespace quintet::QT_GPU
