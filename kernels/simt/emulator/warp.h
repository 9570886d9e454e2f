#pragma once
// Block barriers, warp shuffles, votes, matches and reductions. Included by language.h.
// CUDA C++ Programming Guide, "Warp Shuffle Functions", "Warp Vote Functions", "Warp Match
// Functions", "Warp Reduce Functions", "Synchronization Functions".

#include <cstring>
#include <type_traits>

#include "kernels/simt/emulator/engine.h"

namespace quintet::emulated {
namespace simt::emulator {

/// What a lane brings to a warp-wide operation and takes from it.
struct Exchange {
  uint64_t in = 0;
  uint64_t out = 0;
  int argument = 0;
  int width = 32;
};

// The arrays have 32 entries; only those in `mask` are set.
void shuffle_index(void* const* lanes, unsigned mask);
void shuffle_up(void* const* lanes, unsigned mask);
void shuffle_down(void* const* lanes, unsigned mask);
void shuffle_xor(void* const* lanes, unsigned mask);
void vote(void* const* lanes, unsigned mask);
void match(void* const* lanes, unsigned mask);
void nothing(void* const* lanes, unsigned mask);

template <typename T>
T shuffle(const char* what, void (*run)(void* const*, unsigned), unsigned mask, T value,
          int argument, int width) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  Exchange e;
  std::memcpy(&e.in, &value, sizeof(T));
  e.argument = argument;
  e.width = width;
  warp_collective(what, mask, &e, run);
  T result;
  std::memcpy(&result, &e.out, sizeof(T));
  return result;
}

template <typename T, typename F>
T reduce(const char* what, unsigned mask, T value, F f) {
  struct Lane {
    T value;
    F f;
  } lane{value, f};
  warp_collective(what, mask, &lane, [](void* const* lanes, unsigned m) {
    T total{};
    bool first = true;
    for (int i = 0; i < 32; ++i) {
      if (!((m >> i) & 1u)) continue;
      const auto* it = static_cast<const Lane*>(lanes[i]);
      total = first ? it->value : it->f(total, it->value);
      first = false;
    }
    for (int i = 0; i < 32; ++i) {
      if ((m >> i) & 1u) static_cast<Lane*>(lanes[i])->value = total;
    }
  });
  return lane.value;
}

}  // namespace simt::emulator

inline void __syncthreads() { simt::emulator::block_barrier(0, 0, false, "__syncthreads"); }
inline int __syncthreads_count(int predicate) {
  return simt::emulator::block_count(predicate != 0);
}
inline int __syncthreads_or(int predicate) {
  return simt::emulator::block_count(predicate != 0) > 0;
}
inline int __syncthreads_and(int predicate) {
  return simt::emulator::block_count(predicate == 0) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  simt::emulator::warp_collective("__syncwarp", mask, nullptr, simt::emulator::nothing);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  using namespace simt::emulator;
  return shuffle("__shfl_sync", shuffle_index, mask, value, lane, width);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  using namespace simt::emulator;
  return shuffle("__shfl_up_sync", shuffle_up, mask, value, static_cast<int>(delta), width);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  using namespace simt::emulator;
  return shuffle("__shfl_down_sync", shuffle_down, mask, value, static_cast<int>(delta), width);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  using namespace simt::emulator;
  return shuffle("__shfl_xor_sync", shuffle_xor, mask, value, lane_mask, width);
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  using namespace simt::emulator;
  return shuffle<unsigned>("__ballot_sync", vote, mask, predicate != 0, 0, 32);
}
inline int __any_sync(unsigned mask, int predicate) {
  using namespace simt::emulator;
  return shuffle<unsigned>("__any_sync", vote, mask, predicate != 0, 0, 32) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  using namespace simt::emulator;
  return shuffle<unsigned>("__all_sync", vote, mask, predicate == 0, 0, 32) == 0;
}
template <typename T>
unsigned __match_any_sync(unsigned mask, T value) {
  using namespace simt::emulator;
  return static_cast<unsigned>(shuffle<uint64_t>(
      "__match_any_sync", match, mask,
      [&] {
        uint64_t bits = 0;
        std::memcpy(&bits, &value, sizeof(T));
        return bits;
      }(),
      0, 32));
}
inline unsigned __activemask() { return simt::emulator::active_lanes(); }

inline int __reduce_add_sync(unsigned mask, int v) {
  return simt::emulator::reduce("__reduce_add_sync", mask, v, [](int a, int b) { return a + b; });
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned v) {
  return simt::emulator::reduce("__reduce_add_sync", mask, v,
                                [](unsigned a, unsigned b) { return a + b; });
}
inline int __reduce_max_sync(unsigned mask, int v) {
  return simt::emulator::reduce("__reduce_max_sync", mask, v,
                                [](int a, int b) { return a > b ? a : b; });
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned v) {
  return simt::emulator::reduce("__reduce_max_sync", mask, v,
                                [](unsigned a, unsigned b) { return a > b ? a : b; });
}
inline int __reduce_min_sync(unsigned mask, int v) {
  return simt::emulator::reduce("__reduce_min_sync", mask, v,
                                [](int a, int b) { return a < b ? a : b; });
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned v) {
  return simt::emulator::reduce("__reduce_min_sync", mask, v,
                                [](unsigned a, unsigned b) { return a < b ? a : b; });
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned v) {
  return simt::emulator::reduce("__reduce_and_sync", mask, v,
                                [](unsigned a, unsigned b) { return a & b; });
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned v) {
  return simt::emulator::reduce("__reduce_or_sync", mask, v,
                                [](unsigned a, unsigned b) { return a | b; });
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned v) {
  return simt::emulator::reduce("__reduce_xor_sync", mask, v,
                                [](unsigned a, unsigned b) { return a ^ b; });
}

}  // namespace quintet::emulated
