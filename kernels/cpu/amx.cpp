#include "kernels/cpu/amx.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/base/check.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace quintet::amx {
namespace {

Source find_source() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr unsigned kLeaf = 7, kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(kLeaf, 0, &a, &b, &c, &d) == 0 ||
      (d & (kBf16 | kTile | kInt8)) != (kBf16 | kTile | kInt8))
    return Source::none;
  // A thread's state grows by 8 KiB, so Linux gives tiles to processes that ask (arch/x86/include/uapi/asm/prctl.h).
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? Source::cpu : Source::none;
#else
  return Source::none;
#endif
}

Source& chosen() {
  static Source value = find_source();
  return value;
}

/// What LDTILECFG reads.
struct Configuration {
  uint8_t palette = 1, start_row = 0;
  std::array<uint8_t, 14> reserved{};
  std::array<uint16_t, 16> row_bytes{};
  std::array<uint8_t, 16> rows{};

  explicit Configuration(int64_t sums) {
    const auto first = static_cast<uint8_t>(std::min(sums, kTileRows)),
               second = static_cast<uint8_t>(sums - first);
    const std::array<uint8_t, 8> tiles{first, second, 16, first, second, first, first, first};
    for (size_t i = 0; i < tiles.size(); ++i) {
      rows[i] = tiles[i];
      row_bytes[i] = tiles[i] == 0 ? 0 : kRowBytes;
    }
  }
};
static_assert(sizeof(Configuration) == 64);

struct EmulatedTile {
  size_t rows = 0;
  alignas(64) std::array<std::array<std::byte, kRowBytes>, kTileRows> bytes{};

  template <class Number>
  Number at(size_t row, size_t i) const {
    Number number;
    std::memcpy(&number, bytes[row].data() + i * sizeof(Number), sizeof(Number));
    return number;
  }
  template <class Number>
  void set(size_t row, size_t i, Number number) {
    std::memcpy(bytes[row].data() + i * sizeof(Number), &number, sizeof(Number));
  }
};
thread_local std::array<EmulatedTile, 8> emulated;

EmulatedTile& tile(int i) { return emulated[static_cast<size_t>(i)]; }

float flushed(float x) { return std::abs(x) < std::numeric_limits<float>::min() ? 0.0F : x; }
float from_bf16(uint16_t bits) { return flushed(std::bit_cast<float>(uint32_t{bits} << 16)); }

thread_local bool has_tiles = false;

}  // namespace

Source source() { return chosen(); }
void set_source_for_test(Source source) { chosen() = source; }

Tiles::Tiles(int64_t rows) {
  QT_ASSERT(rows > 0 && rows <= 2 * kTileRows && source() != Source::none && !has_tiles);
  has_tiles = true;
  const Configuration wanted(rows);
  if (source() == Source::emulated)
    for (size_t i = 0; i < emulated.size(); ++i) emulated[i].rows = wanted.rows[i];
#if defined(__x86_64__)
  else
    asm volatile("ldtilecfg %0" : : "m"(wanted));
#endif
}

Tiles::~Tiles() {
  has_tiles = false;
#if defined(__x86_64__)
  if (source() == Source::cpu) asm volatile("tilerelease" : :);
#endif
}

void Emulated::zero(int i) { tile(i).bytes = {}; }

void Emulated::load(int i, const void* from, int64_t stride) {
  for (size_t r = 0; r < tile(i).rows; ++r)
    std::memcpy(tile(i).bytes[r].data(),
                static_cast<const std::byte*>(from) + static_cast<int64_t>(r) * stride, kRowBytes);
}

void Emulated::store(int i, void* to, int64_t stride) {
  for (size_t r = 0; r < tile(i).rows; ++r)
    std::memcpy(static_cast<std::byte*>(to) + static_cast<int64_t>(r) * stride,
                tile(i).bytes[r].data(), kRowBytes);
}

void Emulated::add_int8(int sum, int x, int w) {
  for (size_t r = 0; r < tile(sum).rows; ++r)
    for (size_t c = 0; c < 16; ++c) {
      auto total = tile(sum).at<int32_t>(r, c);
      for (size_t i = 0; i < 64; ++i)
        total += tile(x).at<int8_t>(r, i) * tile(w).at<int8_t>(i / 4, 4 * c + i % 4);
      tile(sum).set(r, c, total);
    }
}

void Emulated::add_bf16(int sum, int x, int w) {
  for (size_t r = 0; r < tile(sum).rows; ++r)
    for (size_t c = 0; c < 16; ++c) {
      std::array<float, 2> halves{};  // those of even and of odd places are added up alone
      for (size_t i = 0; i < 32; ++i)
        halves[i % 2] =
            flushed(std::fma(from_bf16(tile(x).at<uint16_t>(r, i)),
                             from_bf16(tile(w).at<uint16_t>(i / 2, 2 * c + i % 2)), halves[i % 2]));
      tile(sum).set(r, c, flushed(tile(sum).at<float>(r, c) + flushed(halves[0] + halves[1])));
    }
}

}  // namespace quintet::amx
