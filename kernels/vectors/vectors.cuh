#pragma once
// What the memory-bound kernels share: a few consecutive elements at a time as floats, loops over
// flat arrays in units of 16 bytes, sums over warps and blocks in a fixed order.
//
//   for_units<kLanes<T>>(n, vector, [&](int64_t i, auto count) {
//     float v[count];
//     load<count>(x + i, v);
//     for (float& a : v) a *= factor;
//     store<count>(y + i, v);
//   });

#include <bit>
#include <initializer_list>
#include <type_traits>

#include "kernels/simt/simt.cuh"

namespace quintet::QT_GPU {

using simt::bf16;

inline constexpr unsigned kWholeWarp = 0xffffffffu;
inline constexpr int kBlockThreads = 256;

/// Elements of T in 16 bytes.
template <typename T>
inline constexpr int kLanes = 16 / static_cast<int>(sizeof(T));

template <int kCount>
using Count = std::integral_constant<int, kCount>;

/// kWords aligned 4-byte words. The emulator copies bytes: its compiler may assume that pointers of
/// different types differ.
template <int kWords>
QT_DEVICE void load_words(const void* from, uint32_t (&words)[kWords]) {
#ifdef QUINTET_EMULATE
  simt::emulator::check_alignment(from, sizeof words < 16 ? sizeof words : 16);
  __builtin_memcpy(words, from, sizeof words);
#else
  static_assert(kWords == 1 || kWords == 2 || kWords % 4 == 0);
  if constexpr (kWords == 1) {
    words[0] = *static_cast<const uint32_t*>(from);
  } else if constexpr (kWords == 2) {
    const uint2 u = *static_cast<const uint2*>(from);
    words[0] = u.x, words[1] = u.y;
  } else {
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i) {
      const uint4 u = static_cast<const uint4*>(from)[i];
      words[4 * i] = u.x, words[4 * i + 1] = u.y, words[4 * i + 2] = u.z, words[4 * i + 3] = u.w;
    }
  }
#endif
}
template <int kWords>
QT_DEVICE void store_words(void* to, const uint32_t (&words)[kWords]) {
#ifdef QUINTET_EMULATE
  simt::emulator::check_alignment(to, sizeof words < 16 ? sizeof words : 16);
  __builtin_memcpy(to, words, sizeof words);
#else
  if constexpr (kWords == 1) {
    *static_cast<uint32_t*>(to) = words[0];
  } else if constexpr (kWords == 2) {
    *static_cast<uint2*>(to) = make_uint2(words[0], words[1]);
  } else {
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i)
      static_cast<uint4*>(to)[i] =
          make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
  }
#endif
}

/// Words of memory as elements of T, and back.
template <typename T, int kCount, int kWords>
QT_DEVICE void unpack_words(const uint32_t (&words)[kWords], float (&v)[kCount]) {
  static_assert(kWords * 4 == kCount * sizeof(T));
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if constexpr (std::is_same_v<T, float>)
      v[i] = __uint_as_float(words[i]);
    else
      v[i] = __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000u);
  }
}
template <typename T, int kCount, int kWords>
QT_DEVICE void pack_words(const float (&v)[kCount], uint32_t (&words)[kWords]) {
  static_assert(kWords * 4 == kCount * sizeof(T));
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    if constexpr (std::is_same_v<T, float>)
      words[i] = __float_as_uint(v[i]);
    else
      words[i] = simt::pack_bf16(v[2 * i], v[2 * i + 1]);
  }
}

/// kCount consecutive elements as floats; more than one: p a multiple of min(16, their bytes).
template <int kCount, typename T>
QT_DEVICE void load(const T* p, float (&v)[kCount]) {
  if constexpr (kCount == 1) {
    v[0] = simt::to_float(*p);
  } else {
    uint32_t words[kCount * sizeof(T) / 4];
    load_words(p, words);
    unpack_words<T>(words, v);
  }
}
/// The same of memory that no thread of the kernel writes: such loads may go before stores.
template <int kCount>
QT_DEVICE void load_constant(const float* p, float (&v)[kCount]) {
  static_assert(kCount % 4 == 0);
#ifdef QUINTET_EMULATE
  load<kCount>(p, v);
#else
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i) {
    const float4 f = __ldg(reinterpret_cast<const float4*>(p) + i);
    v[4 * i] = f.x, v[4 * i + 1] = f.y, v[4 * i + 2] = f.z, v[4 * i + 3] = f.w;
  }
#endif
}
template <int kCount, typename T>
QT_DEVICE void store(T* p, const float (&v)[kCount]) {
  if constexpr (kCount == 1) {
    *p = simt::from_float<T>(v[0]);
  } else {
    uint32_t words[kCount * sizeof(T) / 4];
    pack_words<T>(v, words);
    store_words(p, words);
  }
}

/// Calls body(first element, Count<kCount>) for all of n elements shared out among the threads of
/// the grid (blocks and threads along x), with Count<1> for the rest, or for all unless `vector`.
template <int kCount, typename Body>
QT_DEVICE void for_units(int64_t n, bool vector, const Body& body) {
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  const int64_t units = vector ? n / kCount : 0;
  for (int64_t u = first; u < units; u += threads) body(u * kCount, Count<kCount>{});
  for (int64_t i = units * kCount + first; i < n; i += threads) body(i, Count<1>{});
}

/// Sum over a warp, the same bits on all lanes.
template <typename T>
QT_DEVICE T warp_sum(T v) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    v += __shfl_xor_sync(kWholeWarp, v, distance);
  return v;
}
QT_DEVICE float warp_max(float v) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    v = fmaxf(v, __shfl_xor_sync(kWholeWarp, v, distance));
  return v;
}

/// Sum over a block of whole warps, the same bits on all threads. `workspace`: 32 T in shared memory,
/// free again after the next barrier.
template <typename T>
QT_DEVICE T block_sum(T v, simt::Shared<T> workspace) {
  v = warp_sum(v);
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  __syncthreads();
  if (lane == 0) workspace[warp] = v;
  __syncthreads();
  return warp_sum(lane < warps ? T(workspace[lane]) : T(0));
}
QT_DEVICE float block_max(float v, simt::Shared<float> workspace) {
  v = warp_max(v);
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  __syncthreads();
  if (lane == 0) workspace[warp] = v;
  __syncthreads();
  return warp_max(float(workspace[lane < warps ? lane : 0]));
}

/// Blocks of kBlockThreads for n threads' worth of work; at least 1.
inline unsigned blocks_for(int64_t threads) {
  const int64_t blocks = (threads + kBlockThreads - 1) / kBlockThreads;
  constexpr int64_t kMostBlocks = 1 << 20;  // loops take the rest
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks > kMostBlocks ? kMostBlocks : blocks);
}
/// Whether 16-byte accesses are possible at all of these addresses.
inline bool are_aligned(std::initializer_list<const void*> pointers) {
  for (const void* p : pointers)
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return false;
  return true;
}

}  // namespace quintet::QT_GPU
