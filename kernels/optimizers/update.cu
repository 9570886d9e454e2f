#include <vector>

#include "kernels/optimizers/chunk.cuh"
#include "kernels/optimizers/optimizers_gpu.h"
#include "kernels/optimizers/used_gradient.cuh"
#include "kernels/optimizers/watch.cuh"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {
namespace {

using Entry = ArrayEntry<UpdateArrays>;

/// The passes that are a whole optimizer; rules.cu has the elementary ones.
struct Adam {
  cpu::AdamStep s;
  static constexpr int kStates = 2;
  __device__ void operator()(float g, Number& x) const {
    x.first = s.b1 * x.first + s.one_minus_b1 * g;
    x.second = s.b2 * x.second + s.one_minus_b2 * (g * g);
    const float top = s.mu_use * x.first + s.gradient_use * g;
    const float bottom = sqrtf(s.nu_use * x.second + s.eps_root) + s.eps;
    x.param -= s.rate * (s.decay * x.param + top / bottom);
  }
};

struct Lion {
  cpu::LionStep s;
  static constexpr int kStates = 1;
  __device__ void operator()(float g, Number& x) const {
    // Products rounded apart, as in the reference: the sign of a sum near zero must be the same.
    const float blend = __fadd_rn(__fmul_rn(s.one_minus_b1, g), __fmul_rn(s.b1, x.first));
    const float sign = blend == 0 ? 0.0f : copysignf(1.0f, blend);
    x.param -= s.rate * (s.decay * x.param + sign);
    x.first = s.b2 * x.first + s.one_minus_b2 * g;
  }
};

/// Without momentum there is no trace.
template <bool kMomentum>
struct Sgd {
  cpu::SgdStep s;
  static constexpr int kStates = kMomentum ? 1 : 0;
  __device__ void operator()(float g, Number& x) const {
    float direction = g;
    if constexpr (kMomentum) {
      x.first = s.momentum * x.first + g;
      direction = s.nesterov ? s.momentum * x.first + g : x.first;
    }
    x.param -= s.rate * direction;
  }
};

template <int kCount, typename Rule>
__device__ void update_unit(const UpdateArrays& a, const Rule& rule, const UsedGradient& use,
                            int64_t i, float& bad) {
  float g[kCount] = {}, param[kCount], first[kCount] = {}, second[kCount] = {};
  if (a.gradient.pointer != nullptr) load<kCount>(a.gradient, i, g);
  load<kCount>(a.param + i, param);
  if constexpr (Rule::kStates > 0) load<kCount>(a.first + i, first);
  if constexpr (Rule::kStates > 1) load<kCount>(a.second + i, second);
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    Number x{param[k], first[k], second[k]};
    rule(use(g[k]), x);
    param[k] = x.param, first[k] = x.first, second[k] = x.second;
    watch(bad, x.param);
    if constexpr (Rule::kStates > 0) watch(bad, x.first);
    if constexpr (Rule::kStates > 1) watch(bad, x.second);
  }
  store<kCount>(a.param + i, param);
  if constexpr (Rule::kStates > 0) store<kCount>(a.first + i, first);
  if constexpr (Rule::kStates > 1) store<kCount>(a.second + i, second);
  if (a.copy != nullptr) store<kCount>(static_cast<bf16*>(a.copy) + i, param);
}

template <typename Rule>
__global__ void __launch_bounds__(kBlockThreads)
    update_kernel(const __grid_constant__ Table<Entry> table, Rule rule, cpu::GradientUse given,
                  const UpdateControl* control) {
  UsedGradient use{given.scale, given.limit};
  if (control != nullptr) {
    if (control->skip != 0) return;
    use.scale *= control->scale;
  }
  const Entry& e = entry_of(table, blockIdx.x);
  float bad = 0;
  for_units_of_chunk(e, [&](auto count, int64_t i) {
    update_unit<decltype(count)::value>(e.arrays, rule, use, i, bad);
  });
  mark_if(bad, e.arrays.not_finite);
}

template <typename Rule>
void update_all(std::span<const UpdateArrays> arrays, const Rule& rule, const cpu::GradientUse& use,
                const UpdateControl* control, Stream stream) {
  std::vector<Entry> entries;
  for (const UpdateArrays& a : arrays) {
    QT_ASSERT(a.n == 0 || ((Rule::kStates < 1 || a.first != nullptr) &&
                           (Rule::kStates < 2 || a.second != nullptr)));
    entries.push_back(
        {a, 0, are_aligned({a.gradient.pointer, a.param, a.first, a.second, a.copy}) ? 1 : 0});
  }
  in_tables<Entry>(
      entries, [](const Entry& e) { return e.chunks(); },
      [&](const Table<Entry>& table, int64_t chunks) {
        simt::launch(
            update_kernel<Rule>,
            {.grid = static_cast<unsigned>(chunks), .block = kBlockThreads, .stream = stream},
            table, rule, use, control);
      });
}

}  // namespace

void update_adam_gpu(std::span<const UpdateArrays> arrays, const cpu::AdamStep& step,
                     const cpu::GradientUse& use, const UpdateControl* control, Stream stream) {
  update_all(arrays, Adam{step}, use, control, stream);
}

void update_lion_gpu(std::span<const UpdateArrays> arrays, const cpu::LionStep& step,
                     const cpu::GradientUse& use, const UpdateControl* control, Stream stream) {
  update_all(arrays, Lion{step}, use, control, stream);
}

void update_sgd_gpu(std::span<const UpdateArrays> arrays, const cpu::SgdStep& step,
                    const cpu::GradientUse& use, const UpdateControl* control, Stream stream) {
  std::vector<UpdateArrays> with, without;  // momentum
  for (const UpdateArrays& a : arrays) (a.first != nullptr ? with : without).push_back(a);
  update_all(std::span<const UpdateArrays>(with), Sgd<true>{step}, use, control, stream);
  update_all(std::span<const UpdateArrays>(without), Sgd<false>{step}, use, control, stream);
}

}  // namespace quintet::QT_GPU
