#include "kernels/simt/emulator/matrix.h"

#include <fmt/format.h>

#include <cstring>

#include "kernels/simt/emulator/engine/resident_blocks.h"
#include "kernels/simt/simt.cuh"

namespace quintet::emulated::simt::emulator {
namespace {

typedef float Vector __attribute__((vector_size(32), aligned(4)));

template <bool kFused>
__attribute__((always_inline)) inline void multiply_add_rows(float* d, const float* a,
                                                             const float* b, int rows, int columns,
                                                             int depth) {
  for (int j = 0; j < columns; j += 8) {
    for (int i = 0; i < rows; ++i) {
      Vector sum;
      std::memcpy(&sum, d + i * columns + j, sizeof(sum));
      for (int k = 0; k < depth; ++k) {
        Vector row;
        std::memcpy(&row, b + k * columns + j, sizeof(row));
        sum += row * a[i * depth + k];
      }
      std::memcpy(d + i * columns + j, &sum, sizeof(sum));
    }
  }
}

__attribute__((target("avx2,fma"))) void multiply_add_avx2(float* d, const float* a, const float* b,
                                                           int rows, int columns, int depth) {
  multiply_add_rows<true>(d, a, b, rows, columns, depth);
}

struct MatrixRows {
  uint32_t* out;
  const uint32_t* in;
  char* row;
  int count;
  char early[16];  // the row as it was when its lane arrived, under some schedules
};

/// The 16-bit value (row, column) of matrix `matrix`, whose row addresses lanes 8 * matrix.. give.
uint16_t& element(void* const* lanes, int matrix, int row, int column) {
  const auto* from = static_cast<const MatrixRows*>(lanes[matrix * 8 + row]);
  return *reinterpret_cast<uint16_t*>(from->row + column * 2);
}

template <bool kTransposed, bool kStore>
void move_matrices(void* const* lanes, unsigned mask) {
  if (mask != 0xffffffffu) fail_here("matrix load or store by a warp that is not full");
  const int count = static_cast<const MatrixRows*>(lanes[0])->count;
  for (int lane = 0; lane < 32; ++lane) {
    const auto* it = static_cast<const MatrixRows*>(lanes[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int m = 0; m < count; ++m) {
      uint16_t& low = kTransposed ? element(lanes, m, 2 * t, g) : element(lanes, m, g, 2 * t);
      uint16_t& high =
          kTransposed ? element(lanes, m, 2 * t + 1, g) : element(lanes, m, g, 2 * t + 1);
      if (kStore) {
        low = static_cast<uint16_t>(it->in[m]);
        high = static_cast<uint16_t>(it->in[m] >> 16);
      } else {
        it->out[m] = low | static_cast<uint32_t>(high) << 16;
      }
    }
  }
}

void check_row(const void* row, int count, const char* what) {
  if (self->lane >= count * 8) return;
  block_of(row, 16, what);
  if (reinterpret_cast<uintptr_t>(row) % 16) {
    fail_here(fmt::format("{}: a row's address is not a multiple of 16", what));
  }
}

struct Fragments {
  float* d;
  const uint32_t* a;
  const uint32_t* b;
  const float* c;
};

float value(uint32_t bits, int half_index, Element e) {
  const auto h = static_cast<uint16_t>(bits >> (16 * half_index));
  return e == Element::kBf16 ? to_float(bf16{h}) : to_float(half{h});
}

template <Element kElement>
void run_mma(void* const* lanes, unsigned mask) {
  if (mask != 0xffffffffu) fail_here("mma by a warp that is not full");
  constexpr int kDepth = kElement == Element::kTf32 ? 8 : 16;
  float a[16 * kDepth], b[kDepth * 8], d[16 * 8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto* f = static_cast<const Fragments*>(lanes[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      d[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = f->c[i];
      const int row = g + 8 * (i % 2);
      if constexpr (kElement == Element::kTf32) {
        a[row * kDepth + t + 4 * (i / 2)] = __uint_as_float(f->a[i] & 0xffffe000u);
      } else {
        for (int h = 0; h < 2; ++h) {
          a[row * kDepth + 2 * t + h + 8 * (i / 2)] = value(f->a[i], h, kElement);
        }
      }
    }
    for (int i = 0; i < 2; ++i) {
      if constexpr (kElement == Element::kTf32) {
        b[(t + 4 * i) * 8 + g] = __uint_as_float(f->b[i] & 0xffffe000u);
      } else {
        for (int h = 0; h < 2; ++h) b[(2 * t + h + 8 * i) * 8 + g] = value(f->b[i], h, kElement);
      }
    }
  }
  multiply_add(d, a, b, 16, 8, kDepth);
  for (int lane = 0; lane < 32; ++lane) {
    const auto* f = static_cast<const Fragments*>(lanes[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) f->d[i] = d[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2];
  }
}

struct IntFragments {
  int32_t* d;
  const uint32_t* a;
  const uint32_t* b;
  const int32_t* c;
};

void run_mma_s8(void* const* lanes, unsigned mask) {
  if (mask != 0xffffffffu) fail_here("mma by a warp that is not full");
  int8_t a[16][32], b[32][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto* f = static_cast<const IntFragments*>(lanes[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int byte = 0; byte < 4; ++byte) {
      for (int i = 0; i < 4; ++i) {
        a[g + 8 * (i % 2)][4 * t + byte + 16 * (i / 2)] =
            static_cast<int8_t>(f->a[i] >> (8 * byte));
      }
      for (int i = 0; i < 2; ++i)
        b[4 * t + byte + 16 * i][g] = static_cast<int8_t>(f->b[i] >> (8 * byte));
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const auto* f = static_cast<const IntFragments*>(lanes[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      auto sum = static_cast<uint32_t>(f->c[i]);
      for (int k = 0; k < 32; ++k) {
        sum += static_cast<uint32_t>(a[g + 8 * (i / 2)][k] * b[k][2 * t + i % 2]);
      }
      f->d[i] = static_cast<int32_t>(sum);
    }
  }
}

}  // namespace

void multiply_add(float* d, const float* a, const float* b, int rows, int columns, int depth) {
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2) {
    multiply_add_avx2(d, a, b, rows, columns, depth);
  } else {
    multiply_add_rows<false>(d, a, b, rows, columns, depth);
  }
}

void widen(float* out, const void* in, int count, Element e) {
  for (int i = 0; i < count; ++i) {
    uint16_t h;
    std::memcpy(&h, static_cast<const char*>(in) + 2 * i, 2);
    out[i] = e == Element::kBf16 ? to_float(bf16{h}) : to_float(half{h});
  }
}

void ldmatrix(uint32_t* r, int count, const void* row, bool transposed) {
  check_row(row, count, "ldmatrix");
  MatrixRows rows{r, nullptr, static_cast<char*>(const_cast<void*>(row)), count, {}};
  if (self->lane < count * 8 && resident_blocks().early()) {
    std::memcpy(rows.early, row, 16);
    rows.row = rows.early;
  }
  warp_collective("ldmatrix", 0xffffffffu, &rows,
                  transposed ? move_matrices<true, false> : move_matrices<false, false>);
}

void stmatrix(const uint32_t* r, int count, void* row, bool transposed) {
  check_row(row, count, "stmatrix");
  MatrixRows rows{nullptr, r, static_cast<char*>(row), count, {}};
  warp_collective("stmatrix", 0xffffffffu, &rows,
                  transposed ? move_matrices<true, true> : move_matrices<false, true>);
}

void mma(float* d, const uint32_t* a, const uint32_t* b, const float* c, Element e) {
  Fragments f{d, a, b, c};
  warp_collective("mma", 0xffffffffu, &f,
                  e == Element::kBf16   ? run_mma<Element::kBf16>
                  : e == Element::kHalf ? run_mma<Element::kHalf>
                                        : run_mma<Element::kTf32>);
}

void mma_s8(int32_t* d, const uint32_t* a, const uint32_t* b, const int32_t* c) {
  IntFragments f{d, a, b, c};
  warp_collective("mma", 0xffffffffu, &f, run_mma_s8);
}

}  // namespace quintet::emulated::simt::emulator
