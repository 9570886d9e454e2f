// A block an item. One warp takes the best continuations out of the beams' largest elements; where
// these may not be all that count (ties behind their end, beams that are only there to fill their
// place), the block looks at every logit instead, once for each continuation.

#include "kernels/logits/logits_gpu.h"
#include "kernels/vectors/vectors.cuh"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kMostBeams = 16;
constexpr int kNone = 0x7fffffff;
constexpr float kNegInf = -1.0e7f;

/// A continuation: log probability of its sequence, beam * vocab + token.
struct Candidate {
  float log_prob = -INFINITY;
  int index = kNone;
};
QT_DEVICE bool ranks_before(Candidate a, Candidate b) {
  return a.log_prob > b.log_prob || (a.log_prob == b.log_prob && a.index < b.index);
}
QT_DEVICE Candidate best_of_warp(Candidate c) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const Candidate other{__shfl_xor_sync(kWholeWarp, c.log_prob, distance),
                          __shfl_xor_sync(kWholeWarp, c.index, distance)};
    if (ranks_before(other, c)) c = other;
  }
  return c;
}
QT_DEVICE bool is_dead(float live) { return live < kNegInf / 2; }

/// The item's beams before this step.
struct Item {
  const BeamStep& a;
  int64_t row0;
  __device__ float live(int beam) const { return a.live[row0 + beam]; }
  /// In the order of operations of the host's search.
  __device__ float log_prob(int beam, float logit) const {
    const int64_t row = row0 + beam;
    return ((logit - a.values[row * a.top]) - a.log_sums[row]) + a.live[row];
  }
};

/// The best that ranks after `last` among the largest elements of beams that are alive. A warp.
QT_DEVICE Candidate next_of_tops(const Item& item, Candidate last) {
  const BeamStep& a = item.a;
  const int top = static_cast<int>(a.top), count = static_cast<int>(a.beams) * top;
  Candidate best;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += 32) {
    const int beam = i / top;
    const int64_t at = item.row0 * top + i;
    if (a.indices[at] < 0 || is_dead(item.live(beam))) continue;
    const Candidate c{item.log_prob(beam, a.values[at]),
                      beam * static_cast<int>(a.vocab) + a.indices[at]};
    if (ranks_before(last, c) && ranks_before(c, best)) best = c;
  }
  return best_of_warp(best);
}
/// Whether no element behind the largest can belong to the best that end with `last`. A warp.
QT_DEVICE bool tops_suffice(const Item& item, Candidate last) {
  const BeamStep& a = item.a;
  const int lane = static_cast<int>(threadIdx.x);
  bool suffices = last.index != kNone && !is_dead(last.log_prob);
  if (lane < a.beams && !is_dead(item.live(lane))) {
    const int64_t end = (item.row0 + lane + 1) * a.top - 1;
    if (a.indices[end] >= 0 && !(item.log_prob(lane, a.values[end]) < last.log_prob))
      suffices = false;
  }
  return __ballot_sync(kWholeWarp, suffices) == kWholeWarp;
}
/// The best that ranks after `last` among all logits of all beams, for all threads of the block.
QT_DEVICE Candidate next_of_all(const Item& item, Candidate last,
                                simt::Shared<Candidate> of_warps) {
  const BeamStep& a = item.a;
  Candidate best;
  for (int beam = 0; beam < a.beams; ++beam) {
    const float* const logits = a.logits + (item.row0 + beam) * a.vocab;
    for (int token = static_cast<int>(threadIdx.x); token < a.vocab; token += kThreads) {
      const Candidate c{item.log_prob(beam, logits[token]),
                        beam * static_cast<int>(a.vocab) + token};
      if (ranks_before(last, c) && ranks_before(c, best)) best = c;
    }
  }
  best = best_of_warp(best);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = best;
  __syncthreads();
  for (int warp = 0; warp < kWarps; ++warp)
    if (const Candidate other = of_warps[warp]; ranks_before(other, best)) best = other;
  __syncthreads();
  return best;
}

/// How many of `count` scores come before number `own` when sorted, the highest first.
QT_DEVICE int rank_of(simt::Shared<float> scores, int count, int own) {
  int rank = 0;
  const float mine = scores[own];
  for (int i = 0; i < count; ++i) {
    const float other = scores[i];
    rank += other > mine || (other == mine && i < own);
  }
  return rank;
}

__global__ void __launch_bounds__(kThreads) beam_kernel(const __grid_constant__ BeamStep a) {
  const int item_number = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  if (a.states[item_number] != BeamStep::kRunning) return;
  const int beams = static_cast<int>(a.beams), best_count = 2 * beams;
  const int vocab = static_cast<int>(a.vocab), step = a.steps[item_number];
  const Item item{a, int64_t{item_number} * beams};
  auto best = simt::shared<Candidate>(0, 2 * kMostBeams);
  auto of_warps = simt::shared<Candidate>(sizeof(Candidate) * 2 * kMostBeams, kWarps);
  constexpr size_t kScores = sizeof(Candidate) * (2 * kMostBeams + kWarps);
  auto live_scores = simt::shared<float>(kScores, 2 * kMostBeams);
  auto ended_scores = simt::shared<float>(kScores + 4 * 2 * kMostBeams, 3 * kMostBeams);
  auto suffices = simt::shared<int>(kScores + 4 * 5 * kMostBeams, 1);

  if (thread < 32) {
    Candidate last{INFINITY, -1};
    for (int i = 0; i < best_count; ++i) {
      last = next_of_tops(item, last);
      if (thread == 0) best[i] = last;
    }
    const bool all = tops_suffice(item, last);
    if (thread == 0) suffices[0] = all;
  }
  __syncthreads();
  if (suffices[0] == 0) {
    Candidate last{INFINITY, -1};
    for (int i = 0; i < best_count; ++i) {
      last = next_of_all(item, last, of_warps);
      if (thread == 0) best[i] = last;
    }
    __syncthreads();
    if (last.index == kNone) {  // NaNs
      if (thread == 0) a.states[item_number] = BeamStep::kFailed;
      return;
    }
  }

  // Continuations that ended enter the live set only if nothing else is left, and the others the
  // finished set.
  const int prompt = a.prompt_lengths[item_number];
  const int forced = a.forced[int64_t{item_number} * a.width + step + 1];
  const float penalty = a.penalties[prompt + step + 1];
  int token = 0, parent = 0;
  bool has_ended = false;
  if (thread < best_count) {
    const Candidate c = best[thread];
    parent = c.index / vocab;
    token = forced != 0 ? forced : c.index % vocab;
    has_ended = token == a.eos_id;
    // Inside the prompt all continuations are the same sequence: one stays alive.
    const float score = forced == 0 ? c.log_prob : thread == 0 ? 0.0f : kNegInf;
    live_scores[thread] = score + (has_ended ? kNegInf : 0.0f);
    ended_scores[beams + thread] = score / penalty + (has_ended ? 0.0f : kNegInf);
  }
  const bool was_ended = thread < beams;  // this thread also has a beam that ended before
  FinishedBeam before{};
  if (was_ended) {
    before = a.finished[item.row0 + thread];
    ended_scores[thread] = before.score;
  }
  __syncthreads();
  const auto place_of = [&](int rank) { return item.row0 + beams - 1 - rank; };
  if (was_ended)
    if (const int rank = rank_of(ended_scores, 3 * beams, thread); rank < beams)
      a.finished[place_of(rank)] = before;
  if (thread < best_count) {
    if (const int rank = rank_of(ended_scores, 3 * beams, beams + thread); rank < beams)
      a.finished[place_of(rank)] = {ended_scores[beams + thread], has_ended ? 1 : 0, step, parent,
                                    token};
    if (const int rank = rank_of(live_scores, best_count, thread); rank < beams) {
      const int64_t row = place_of(rank), written = step * a.items * beams + row;
      a.live[row] = live_scores[thread];
      a.written_tokens[written] = token;
      a.written_parents[written] = parent;
      a.next_tokens[row] = token;
      a.next_positions[row] = prompt + step + 1;
      a.next_parents[row] = static_cast<int>(item.row0) + parent;
    }
  }
  __syncthreads();
  if (thread > 0) return;
  a.steps[item_number] = step + 1;
  // The best score a live beam can still reach, as T5X bounds it.
  const float reachable = a.live[item.row0 + beams - 1] / a.penalty_at_end;
  float worst = INFINITY;
  for (int beam = 0; beam < beams; ++beam) worst = fminf(worst, a.finished[item.row0 + beam].score);
  for (int beam = 0; beam < beams; ++beam)
    if (!((a.finished[item.row0 + beam].has_ended ? worst : kNegInf) > reachable)) return;
  a.states[item_number] = BeamStep::kSettled;
  for (int beam = 0; beam < beams; ++beam) {
    a.next_positions[item.row0 + beam] = a.resting_position;
    a.next_parents[item.row0 + beam] = static_cast<int>(item.row0) + beam;
  }
}

}  // namespace

void beam_gpu(const BeamStep& step, Stream stream) {
  QT_ASSERT(step.items > 0 && step.beams > 0 && step.beams <= kMostBeams && step.top >= 1);
  QT_ASSERT(step.beams * step.vocab < kNone);
  simt::launch(beam_kernel,
               {.grid = static_cast<unsigned>(step.items),
                .block = kThreads,
                .shared = sizeof(Candidate) * (2 * kMostBeams + kWarps) + 4 * (5 * kMostBeams + 1),
                .stream = stream},
               step);
}

}  // namespace quintet::QT_GPU
