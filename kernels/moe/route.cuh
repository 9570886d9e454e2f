#pragma once
// What the two ways of routing on a GPU share: where results go, and their sums.

#include "kernels/moe/routing.h"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU::moe {

/// The results of route.h but for the logits.
struct Routes {
  float *gates, *auxiliary, *z_loss;
  int32_t *rows, *choices, *offsets, *experts, *positions;
  float *counts, *load;
  int64_t capacity;  // of choices
  int count_count;   // of counts
};
Routes routes(Views out);

/// Sums over some tokens.
struct Tally {
  float log_sums, gates;  // log_sums: squares
  int32_t served_tokens, counted;

  __device__ Tally& operator+=(const Tally& o) {
    log_sums += o.log_sums, gates += o.gates;
    served_tokens += o.served_tokens, counted += o.counted;
    return *this;
  }
};
/// What a block's threads have added up, together: losses and counts. `balance`: over groups and
/// experts, how often chosen times the sum of probabilities; `served`: choices. In shared memory:
/// 32 floats and as many integers.
__device__ inline void write_totals(const cpu::Routing& r, const Tally& tally, float balance,
                                    int32_t served, const Routes& to, simt::Shared<float> floats,
                                    simt::Shared<int32_t> ints) {
  balance = block_sum(balance, floats);
  served = block_sum(served, ints);
  const float log_sums = block_sum(tally.log_sums, floats), gates = block_sum(tally.gates, floats);
  const int32_t served_tokens = block_sum(tally.served_tokens, ints);
  const int32_t counted = block_sum(tally.counted, ints);
  if (threadIdx.x > 0) return;
  const auto size = static_cast<float>(r.group_size);
  *to.auxiliary =
      balance * static_cast<float>(r.experts) / (size * size * static_cast<float>(r.groups));
  *to.z_loss = log_sums / static_cast<float>(r.all_tokens());
  // flaxformer counts a token once for each of its copies here.
  const bool copies = r.router == Router::scatter && r.ignore_padding;
  const float copied = copies ? static_cast<float>(r.choices) : 1.0f;
  const auto write = [&](int i, float v) {
    if (i < to.count_count) to.counts[i] = v;
  };
  write(0, static_cast<float>(served_tokens));
  write(1, static_cast<float>(served));
  write(2, gates);
  write(3, static_cast<float>(counted) * copied);
  write(4, static_cast<float>(r.local_groups() * r.experts * r.capacity));
}

/// Routing in one launch (route_one_pass.cu), where that can be done.
bool can_route_in_one_pass(const cpu::Routing& r);
void route_in_one_pass(const cpu::Routing& r, const View& x, const float* logits, Views out,
                       Stream stream);

}  // namespace quintet::QT_GPU::moe
