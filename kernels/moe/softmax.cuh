#pragma once
// What kernels of routing and its gradient share: one thread or one warp an item; softmax over experts
// and choices of one token by a warp, lane i having the experts i, i + 32, ... of a row in global or in
// shared memory.

#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU::moe {

inline simt::Launch over(int64_t threads, Stream stream) {
  return {.grid = static_cast<unsigned>((threads + kBlockThreads - 1) / kBlockThreads),
          .block = kBlockThreads,
          .stream = stream};
}

struct Softmax {
  float largest = -INFINITY, sum = 0;

  template <typename Row>
  __device__ Softmax(const Row& logits, int experts) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    for (int e = lane; e < experts; e += 32) largest = fmaxf(largest, logits[e]);
    largest = warp_max(largest);
    for (int e = lane; e < experts; e += 32) sum += expf(logits[e] - largest);
    sum = warp_sum(sum);
  }
  __device__ float operator()(float logit) const { return expf(logit - largest) / sum; }
  __device__ float log_sum() const { return largest + logf(sum); }
};

/// A token's choices, the largest probability first, of equal ones the lower expert.
struct Choice {
  float probability = INFINITY;
  int expert = -1;

  /// The next choice, `number`, of all lanes.
  template <typename Row>
  __device__ int next(const Row& probabilities, int experts, int number) {
    float most = -1;
    int best = experts;
    for (int e = static_cast<int>(threadIdx.x % 32); e < experts; e += 32) {
      const float p = probabilities[e];
      const bool is_behind = p < probability || (p == probability && e > expert);
      if (is_behind && p > most) most = p, best = e;
    }
    probability = warp_max(most);
    expert = __reduce_min_sync(kWholeWarp, most == probability ? best : experts);
    // Nothing is larger than NaN: then any expert will do.
    return expert < experts ? expert : number;
  }
};

/// Whether a token's x is all zero; for a whole warp.
template <typename T>
__device__ inline bool is_zero(const T* x, int64_t embed) {
  bool mine = true;
  for (int64_t i = threadIdx.x % 32; i < embed; i += 32) mine = mine && simt::to_float(x[i]) == 0;
  return __all_sync(kWholeWarp, mine) != 0;
}

}  // namespace quintet::QT_GPU::moe
