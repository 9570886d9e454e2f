// One block for all rows: whether any of them goes on is known without another launch.

#include "kernels/logits/logits_gpu.h"
#include "kernels/random/threefry.cuh"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {
namespace {

constexpr int kThreads = 256;

/// Returns whether the row has ended. As temperature_sample.cpp's advance, step for step: rows that
/// ended go on writing padding for as long as any row runs.
QT_DEVICE bool advance(const SampleStep& a, int64_t row) {
  // Beyond its allowance a row goes on overwriting one place behind the output.
  const int index = a.indices[row] < a.allowances[row] ? a.indices[row] : a.allowances[row];
  int32_t& place = a.sequences[row * a.width + index + 1];
  const int32_t prompt = place, token = prompt == 0 ? a.drawn[row] : prompt;
  const bool had_ended = a.ended[row] != 0, is_free = prompt == 0 && !had_ended;
  if (is_free) a.log_probs[row] += a.drawn_log_probs[row];
  const bool ended =
      had_ended || (is_free && token == a.eos_id && token != 0) || index >= a.allowances[row] - 1;
  place = had_ended ? 0 : token;
  a.indices[row] = index + 1;
  a.ended[row] = ended ? 1 : 0;
  a.next_tokens[row] = ended ? 0 : token;
  a.next_positions[row] = ended ? a.resting_position : index + 1;
  return ended;
}

__global__ void __launch_bounds__(kThreads) advance_kernel(const __grid_constant__ SampleStep a) {
  auto running = simt::shared<int>(0, 1);
  const int thread = static_cast<int>(threadIdx.x);
  const int before = a.running[0];
  if (thread == 0) running[0] = 0;
  __syncthreads();
  if (before == 0) return;
  int mine = 0;
  for (int64_t row = thread; row < a.rows; row += kThreads) mine += advance(a, row) ? 0 : 1;
  if (mine > 0) atomicAdd(&running[0], mine);
  __syncthreads();
  if (thread > 0) return;
  a.running[0] = running[0];
  const Key key = a.keys[1];
  a.keys[0] = threefry_block(key, 0);
  a.keys[1] = threefry_block(key, 1);
}

}  // namespace

void advance_samples_gpu(const SampleStep& step, Stream stream) {
  QT_ASSERT(step.rows > 0 && step.width > 1);
  simt::launch(advance_kernel,
               {.grid = 1, .block = kThreads, .shared = sizeof(int), .stream = stream}, step);
}

}  // namespace quintet::QT_GPU
