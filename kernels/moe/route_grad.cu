#include <algorithm>

#include "kernels/elementwise/elementwise_gpu.h"
#include "kernels/moe/moe_gpu.h"
#include "kernels/moe/router_gpu.h"
#include "kernels/moe/routing.h"
#include "kernels/moe/softmax.cuh"
#include "kernels/simt/host/scratch.h"
#include "kernels/vectors/operands_gpu.h"

namespace quintet::QT_GPU {
namespace {

using cpu::Routing;

/// counts[group, expert]: how often each expert was chosen; zero before. Integers: any order will do.
__global__ void __launch_bounds__(kBlockThreads)
    count_kernel(const __grid_constant__ Routing r, const int32_t* experts, int32_t* counts) {
  const int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (i >= r.tokens() * r.choices) return;
  const int64_t t = i / r.choices, j = i % r.choices, place = r.place(t);
  if (place < 0 && r.ignore_padding && r.router == Router::tokens_choose) return;
  // Added padding ties everywhere and chooses the first experts.
  const int64_t e = place < 0 ? j : experts[place * r.choices + j];
  if (e >= 0) atomicAdd(&counts[t / r.group_size * r.experts + e], 1);
}

struct Gradients {
  const float *logits, *gates, *dgates;  // dgates, dauxiliary, dz_loss: null if 0
  const int32_t *experts, *counts;
  const float *dauxiliary, *dz_loss;
  bool of_bias;  // padding, whose logits are the bias, has a z-loss
};

/// A warp a token: dlogits [tokens, experts] of the block.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    logits_kernel(const __grid_constant__ Routing r, const __grid_constant__ Gradients from,
                  const T* x, float* dlogits) {
  const int64_t number = (int64_t{blockIdx.x} * kBlockThreads + threadIdx.x) / 32;
  const int64_t t = number < r.tokens() ? r.place(number) : -1;
  if (t < 0) return;
  const int32_t* counts =
      from.counts == nullptr ? nullptr : from.counts + number / r.group_size * r.experts;
  const int lane = static_cast<int>(threadIdx.x % 32), experts = static_cast<int>(r.experts);
  float* to = dlogits + t * experts;
  const bool padding = r.ignore_padding && moe::is_zero(x + t * r.embed, r.embed);
  if (padding && !from.of_bias) {
    for (int e = lane; e < experts; e += 32) to[e] = 0;
    return;
  }
  const float* logits = from.logits + t * experts;
  const moe::Softmax softmax(logits, experts);
  const float dz =
      from.dz_loss == nullptr ? 0.0f : 2.0f * *from.dz_loss / static_cast<float>(r.all_tokens());
  if (padding) {
    for (int e = lane; e < experts; e += 32) to[e] = softmax(logits[e]) * dz * softmax.log_sum();
    return;
  }
  const auto size = static_cast<float>(r.group_size);
  const float balance = counts == nullptr ? 0.0f
                                          : *from.dauxiliary * static_cast<float>(experts) /
                                                (static_cast<float>(r.groups) * size * size);
  const auto gate_gradient = [&](int e) {
    if (from.dgates == nullptr) return 0.0f;
    const int64_t first = t * r.choices;
    const auto of_choice = [&](int64_t c) { return from.gates[c] != 0 ? from.dgates[c] : 0.0f; };
    if (r.router == Router::experts_choose) return of_choice(first + e);
    for (int64_t c = first; c < first + r.choices; ++c)
      if (from.experts[c] == e) return of_choice(c);
    return 0.0f;
  };
  float mean = 0;
  for (int e = lane; e < experts; e += 32) {
    float dp = gate_gradient(e);
    if (counts != nullptr) dp += balance * static_cast<float>(counts[e]);
    to[e] = dp;
    mean += softmax(logits[e]) * dp;
  }
  mean = warp_sum(mean);
  for (int e = lane; e < experts; e += 32)
    to[e] = softmax(logits[e]) * (to[e] - mean + dz * softmax.log_sum());
}

}  // namespace

void route_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "route_grad";
  const View &x = in[0], &w = in[1];
  const Routing r(op, x, w, attrs);
  const int64_t groups = r.local_groups();
  Gradients from{};
  from.logits = elements<float>(in[2], op, "logits");
  from.experts = in[3].data<const int32_t>();
  from.gates = elements<float>(in[4], op, "gates");
  from.dgates = optional_elements<float>(in[5], op, "dgates");
  from.dauxiliary = optional_elements<float>(in[6], op, "dauxiliary");
  from.dz_loss = optional_elements<float>(in[7], op, "dz_loss");
  const View dbias = out.size() > 2 ? out[2] : View::none();
  from.of_bias = !dbias.absent();
  const bool balances =
      r.router != Router::experts_choose && from.dauxiliary != nullptr && groups > 0;
  const simt::Scratch counts(balances ? 4 * groups * r.experts : 0, stream);
  if (balances) {
    const int64_t sizes[] = {groups * r.experts};  // zero bits are the integer 0 too
    fill_gpu(View::of(counts.data<float>(), sizes), 0, stream);
    simt::launch(count_kernel, moe::over(r.tokens() * r.choices, stream), r, from.experts,
                 counts.data<int32_t>());
    from.counts = counts.data<int32_t>();
  }
  const simt::Scratch dlogits(4 * r.real_tokens() * r.experts, stream);
  if (r.real_tokens() > 0)
    for_dtype(x, op, [&]<typename T>(T) {
      simt::launch(logits_kernel<T>, moe::over(32 * r.tokens(), stream), r, from,
                   elements<T>(x, op, "x"), dlogits.data<float>());
    });
  moe::router_gradients(x, w, attrs, dlogits.data<float>(), out[0], out[1], addend_of(in, 8, 1),
                        dbias, addend_of(in, 8, 2), stream);
}

}  // namespace quintet::QT_GPU
