#include "kernels/optimizers/rules_cpu.h"

#include <algorithm>
#include <atomic>

#include "runtime/base/dtype.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizers/rules_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace quintet::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kUnit = 1024;

/// Not finite.
HWY_INLINE int is_bad(float x) { return 0 * x == 0 ? 0 : 1; }

/// n numbers from the pointers on; `first` reads and writes the state that may be kept in 16 bits.
template <typename First, typename Rule>
bool step_unit(int64_t n, const RuleState& state, const Rule& rule, GradientUse use,
               float* gradient, float* param, First* first, float* second) {
  float factor = state.factor;
  int bad = 0, found = 0;
  if constexpr (TakesSquares<Rule>) factor = rule.factor(state.squares);
  for (int64_t i = 0; i < n; ++i) {
    Number x{.param = param[i], .factor = factor};
    if constexpr (Rule::kStates > 0) x.first = static_cast<float>(first[i]);
    if constexpr (Rule::kStates > 1) x.second = second[i];
    float g = gradient[i] * use.scale;
    g = g > use.limit ? use.limit : g < -use.limit ? -use.limit : g;
    rule(g, x);
    gradient[i] = g;
    if constexpr (UpdatesParam<Rule>) bad |= is_bad(param[i] = x.param);
    if constexpr (Rule::kStates > 0) bad |= is_bad(static_cast<float>(first[i] = First(x.first)));
    if constexpr (Rule::kStates > 1) bad |= is_bad(second[i] = x.second);
    found |= x.found ? 1 : 0;
  }
  if (found != 0 && state.found != nullptr) std::atomic_ref(*state.found).store(1);
  return bad == 0;
}

/// Where a state begins for element i; null stays null.
template <typename T>
T* from(T* state, int64_t i) {
  return state == nullptr ? nullptr : state + i;
}

bool update(const RuleArrays& arrays, int64_t begin, int64_t end, std::span<const RuleStep> steps) {
  bool finite = true;
  float gradient[kUnit];
  for (int64_t i = begin; i < end; i += kUnit) {
    const int64_t n = std::min(kUnit, end - i);
    (arrays.gradient + i).read(n, gradient);
    for (size_t s = 0; s < steps.size(); ++s) {
      const RuleState& state = arrays.states[s];
      const auto run = [&](const auto& rule, auto* first) {
        return step_unit(n, state, rule, steps[s].use, gradient, arrays.param + i, from(first, i),
                         from(state.second, i));
      };
      finite &= std::visit(
          [&](const auto& rule) {
            return state.first_is_bf16 ? run(rule, reinterpret_cast<bfloat16*>(state.first))
                                       : run(rule, state.first);
          },
          steps[s].rule);
    }
    if (!std::holds_alternative<rules::Apply>(steps.back().rule))
      (arrays.gradient + i).write(n, gradient);
  }
  return finite;
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quintet::cpu {

HWY_EXPORT(update);

bool update_by_rules(const RuleArrays& arrays, int64_t begin, int64_t end,
                     std::span<const RuleStep> steps) {
  return HWY_DYNAMIC_DISPATCH(update)(arrays, begin, end, steps);
}

}  // namespace quintet::cpu
#endif  // HWY_ONCE
