#include "kernels/optimizers/rules_cpu.h"

#include <atomic>

#include "runtime/base/dtype.h"

namespace quintet::cpu {
namespace {

/// `first` reads and writes the state that may be kept in 16 bits.
template <typename First, typename Rule>
bool update_block(const UpdateArrays& a, int64_t begin, int64_t end, const Rule& rule,
                  GradientUse use, First* first) {
  auto* gradient = const_cast<float*>(a.gradient);
  float bad = 0, factor = a.factor;  // bad is NaN once a number is not finite
  bool found = false;
  if constexpr (TakesSquares<Rule>) factor = rule.factor(a.squares);
  for (int64_t i = begin; i < end; ++i) {
    Number x{.param = a.param[i], .factor = factor};
    if constexpr (Rule::kStates > 0) x.first = static_cast<float>(first[i]);
    if constexpr (Rule::kStates > 1) x.second = a.second[i];
    float g = gradient[i] * use.scale;
    g = g > use.limit ? use.limit : g < -use.limit ? -use.limit : g;
    rule(g, x);
    if constexpr (UpdatesParam<Rule>)
      bad += 0 * (a.param[i] = x.param);
    else
      gradient[i] = g;
    if constexpr (Rule::kStates > 0) bad += 0 * static_cast<float>(first[i] = First(x.first));
    if constexpr (Rule::kStates > 1) bad += 0 * (a.second[i] = x.second);
    found |= x.found;
  }
  if (found && a.found != nullptr) std::atomic_ref(*a.found).store(1);
  return bad == 0;
}

}  // namespace

bool update_by_rule(const UpdateArrays& arrays, int64_t begin, int64_t end, const UpdateRule& rule,
                    GradientUse use) {
  return std::visit(
      [&](const auto& r) {
        return arrays.first_is_bf16 ? update_block(arrays, begin, end, r, use,
                                                   reinterpret_cast<bfloat16*>(arrays.first))
                                    : update_block(arrays, begin, end, r, use, arrays.first);
      },
      rule);
}

}  // namespace quintet::cpu
