#pragma once
// Intel's AMX: registers that are tiles of 16 rows of 64 bytes, and products of whole tiles, of int8 or bfloat16
// numbers, several times as fast as those of vectors (Intel 64 and IA-32 Architectures Software Developer's Manual,
// volume 1, chapter 18).
//
//   if (amx::source() == amx::Source::cpu) {
//     const amx::Tiles tiles(24);                    // this thread's, rows of sums: 16 in one tile, 8 in another
//     amx::Cpu::load_once<2>(weights, 128);          // 2: what rows are multiplied with
//     amx::Cpu::load<3>(rows, 64);                   // 3, 4: rows
//     amx::Cpu::add_products<int8_t, 0, 3, 2>();     // 0, 1: sums
//     amx::Cpu::store<0>(sums, 64);
//   }
//
// The fewer tiles are in use the better: each that was written holds a register, and a core that runs two hardware threads
// has few left to rename them to (28 ns for four products and their loads when the core is one's own; with another thread
// on it 105 with eight tiles in use, 60 with five; two Emerald Rapids cores, 2026-11-29).
//
// A product: sum [m, 16] of 32 bits += x [m, 64 bytes] w, where row i of w has of each of 16 columns the numbers that
// meet numbers [4 i, 4 i + 4) of x's rows (bfloat16: [2 i, 2 i + 2)). int8: exact modulo 2^32. bfloat16: the products of
// even and those of odd places are added up in float32, rounded to nearest, then both are added to the sum; numbers below
// 2^-126 are zeros.
//
// Linux saves tiles in signal frames: once a process has asked for them, an alternate stack of signals (sigaltstack) must
// have some 12 KiB, and where a thread already has a smaller one the process gets none.

#include <cstddef>
#include <cstdint>

namespace quintet::amx {

inline constexpr int64_t kTileRows = 16, kRowBytes = 64;

/// Who makes products of tiles: nobody, the CPU, or for tests plain C++ on any CPU.
enum class Source { none, cpu, emulated };
/// `cpu` where it has tiles and the system gives them to this process; asks for them at the first call.
Source source();
/// Instead of what the machine has; before anything is multiplied.
void set_source_for_test(Source source);

/// This thread's tiles for sums of so many rows, at most 32: tiles 0 and 3 have the first 16 of them, 1 and 4 the others,
/// 2 is whole, and 5 to 7 are as 0. Gone with the object, so that a thread that is interrupted has no tiles to save. A thread
/// has one such object at a time, and calls nothing meanwhile that may use tiles, too.
class Tiles {
 public:
  explicit Tiles(int64_t rows);
  ~Tiles();
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

/// The CPU's instructions. Rows in memory are `stride` bytes apart.
struct Cpu {
#if defined(__x86_64__)
  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  static void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  /// What is not soon loaded again: it does not take the first-level cache from what is.
  template <int kTile>
  static void load_once(const void* from, int64_t stride) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(from), "r"(stride), "i"(kTile)
                 : "memory");
  }
  template <int kTile>
  static void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  /// Of int8_t, or of bfloat16.
  template <class Number, int kSum, int kX, int kW>
  static void add_products() {
    if constexpr (sizeof(Number) == 1)
      asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
    else
      asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
  }
#endif
};

/// The same in C++, for tests.
struct Emulated {
  template <int kTile>
  static void zero() {
    zero(kTile);
  }
  template <int kTile>
  static void load(const void* from, int64_t stride) {
    load(kTile, from, stride);
  }
  template <int kTile>
  static void load_once(const void* from, int64_t stride) {
    load(kTile, from, stride);
  }
  template <int kTile>
  static void store(void* to, int64_t stride) {
    store(kTile, to, stride);
  }
  template <class Number, int kSum, int kX, int kW>
  static void add_products() {
    if constexpr (sizeof(Number) == 1)
      add_int8(kSum, kX, kW);
    else
      add_bf16(kSum, kX, kW);
  }

 private:
  static void zero(int tile);
  static void load(int tile, const void* from, int64_t stride);
  static void store(int tile, void* to, int64_t stride);
  static void add_int8(int sum, int x, int w);
  static void add_bf16(int sum, int x, int w);
};

}  // namespace quintet::amx
