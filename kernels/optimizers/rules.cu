// Optax's elementary transformations: the rules of a chain one after the other on each number, in one pass.

#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/optimizers/chunk.cuh"
#include "kernels/optimizers/optimizers_gpu.h"
#include "kernels/optimizers/used_gradient.cuh"
#include "kernels/optimizers/watch.cuh"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {
namespace {

using Entry = ArrayEntry<RuleArrays>;

/// RuleStep as a kernel's parameter: the variant's index, and the numbers of what it holds.
struct Step {
  int32_t rule;
  cpu::GradientUse use;
  const UpdateControl* control;
  alignas(8) unsigned char numbers[sizeof(UpdateRule)];
};
struct Steps {
  int32_t count;
  int32_t updates_param;
  Step steps[kMostRules];
};

/// body(the rule of a step).
template <size_t kRule = 0, typename Body>
__device__ void with_rule(const Step& step, const Body& body) {
  if constexpr (kRule < std::variant_size_v<UpdateRule>) {
    using Rule = std::variant_alternative_t<kRule, UpdateRule>;
    if (step.rule == static_cast<int32_t>(kRule))
      body(*reinterpret_cast<const Rule*>(step.numbers));
    else
      with_rule<kRule + 1>(step, body);
  }
}

/// The state that may be kept in 16 bits.
template <int kCount>
__device__ void load_first(const RuleState& state, int64_t i, float (&first)[kCount]) {
  if (state.first_is_bf16)
    load<kCount>(reinterpret_cast<const bf16*>(state.first) + i, first);
  else
    load<kCount>(state.first + i, first);
}
template <int kCount>
__device__ void store_first(const RuleState& state, int64_t i, const float (&first)[kCount]) {
  if (state.first_is_bf16)
    store<kCount>(reinterpret_cast<bf16*>(state.first) + i, first);
  else
    store<kCount>(state.first + i, first);
}

/// Of a block, in shared memory: what a step multiplies the gradient by, and Number::factor.
struct Scales {
  float gradient[kMostRules], factor[kMostRules];
};

template <int kCount, typename Rule>
__device__ void step_unit(const Rule& rule, const RuleState& state, const UsedGradient& use,
                          float factor, int64_t i, float (&g)[kCount], float (&param)[kCount],
                          float& bad) {
  float first[kCount] = {}, second[kCount] = {};
  if constexpr (Rule::kStates > 0) load_first<kCount>(state, i, first);
  if constexpr (Rule::kStates > 1) load<kCount>(state.second + i, second);
  bool found = false;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    Number x{param[k], first[k], second[k], factor};
    g[k] = use(g[k]);
    rule(g[k], x);
    param[k] = x.param, first[k] = x.first, second[k] = x.second;
    found |= x.found;
    if constexpr (UpdatesParam<Rule>) watch(bad, x.param);
    if constexpr (Rule::kStates > 0) watch(bad, x.first);
    if constexpr (Rule::kStates > 1) watch(bad, x.second);
  }
  if constexpr (Rule::kStates > 0) store_first<kCount>(state, i, first);
  if constexpr (Rule::kStates > 1) store<kCount>(state.second + i, second);
  if (found && state.found != nullptr) *static_cast<volatile int32_t*>(state.found) = 1;
}

template <int kCount>
__device__ void update_unit(const RuleArrays& a, const Steps& steps, const Scales& scales,
                            int64_t i, float& bad) {
  float g[kCount], param[kCount];
  load<kCount>(a.gradient, i, g);
  load<kCount>(a.param + i, param);
  for (int s = 0; s < steps.count; ++s) {
    const Step& step = steps.steps[s];
    const UsedGradient use{scales.gradient[s], step.use.limit};
    with_rule(step, [&](const auto& rule) {
      step_unit<kCount>(rule, a.states[s], use, scales.factor[s], i, g, param, bad);
    });
  }
  if (steps.updates_param == 0) return store<kCount>(a.gradient, i, g);
  store<kCount>(a.param + i, param);
  if (a.copy != nullptr) store<kCount>(static_cast<bf16*>(a.copy) + i, param);
}

/// A thread for each step.
__device__ void scale_step(const Step& step, const RuleState& state, Scales& scales, int s) {
  scales.gradient[s] = step.use.scale * (step.control != nullptr ? step.control->scale : 1.0f);
  scales.factor[s] = state.factor;
  with_rule(step, [&](const auto& rule) {
    if constexpr (TakesSquares<std::decay_t<decltype(rule)>>)
      scales.factor[s] = rule.factor(state.squares);
  });
}

__global__ void __launch_bounds__(kBlockThreads)
    update_by_rules(const __grid_constant__ Table<Entry> table,
                    const __grid_constant__ Steps steps) {
  for (int s = 0; s < steps.count; ++s)
    if (steps.steps[s].control != nullptr && steps.steps[s].control->skip != 0) return;
  const Entry& e = entry_of(table, blockIdx.x);
  Scales& scales = *simt::shared<Scales>(0, 1);
  const auto t = static_cast<int>(threadIdx.x);
  if (t < steps.count) scale_step(steps.steps[t], e.arrays.states[t], scales, t);
  __syncthreads();
  float bad = 0;
  for_units_of_chunk(e, [&](auto count, int64_t i) {
    update_unit<decltype(count)::value>(e.arrays, steps, scales, i, bad);
  });
  mark_if(bad, e.arrays.not_finite);
}

/// Checks what the rule reads of an array, too.
Step step_of(const RuleStep& from, std::span<const RuleArrays> arrays, size_t place) {
  Step step{static_cast<int32_t>(from.rule.index()), from.use, from.control, {}};
  std::visit(
      [&]<typename Rule>(const Rule& rule) {
        static_assert(std::is_trivially_copyable_v<Rule>);
        std::memcpy(step.numbers, &rule, sizeof rule);
        for (const RuleArrays& a : arrays) {
          const RuleState& state = a.states[place];
          QT_ASSERT(a.n == 0 || ((Rule::kStates < 1 || state.first != nullptr) &&
                                 (Rule::kStates < 2 || state.second != nullptr) &&
                                 (!TakesSquares<Rule> || state.squares != nullptr)));
        }
      },
      from.rule);
  return step;
}

bool is_vector(const RuleArrays& a) {
  bool aligned = are_aligned({a.gradient.pointer, a.param, a.copy});
  for (const RuleState& state : a.states) aligned &= are_aligned({state.first, state.second});
  return aligned;
}

}  // namespace

void update_rules_gpu(std::span<const RuleArrays> arrays, std::span<const RuleStep> rules,
                      Stream stream) {
  QT_ASSERT(!rules.empty() && rules.size() <= kMostRules);
  Steps steps{static_cast<int32_t>(rules.size()),
              std::holds_alternative<rules::Apply>(rules.back().rule) ? 1 : 0,
              {}};
  for (size_t s = 0; s < rules.size(); ++s) steps.steps[s] = step_of(rules[s], arrays, s);
  std::vector<Entry> entries;
  for (const RuleArrays& a : arrays) {
    QT_ASSERT(a.n == 0 || a.gradient.pointer != nullptr);
    entries.push_back({a, 0, is_vector(a) ? 1 : 0});
  }
  in_tables<Entry>(
      entries, [](const Entry& e) { return e.chunks(); },
      [&](const Table<Entry>& table, int64_t chunks) {
        simt::launch(update_by_rules,
                     {.grid = static_cast<unsigned>(chunks),
                      .block = kBlockThreads,
                      .shared = sizeof(Scales),
                      .stream = stream},
                     table, steps);
      });
}

}  // namespace quintet::QT_GPU
