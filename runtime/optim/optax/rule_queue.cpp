#include "runtime/optim/optax/rule_queue.h"

#include <algorithm>
#include <atomic>
#include <map>

#include "kernels/gpu/gpu_kernels.h"
#include "kernels/optimizers/rules_cpu.h"
#include "runtime/base/check.h"
#include "runtime/optim/blocks.h"

namespace quintet {

RuleQueue::RuleQueue(std::span<const ParamSlot> params, std::span<const FloatPointer> gradients)
    : waiting_(params.size()) {
  QT_ASSERT(params.size() == gradients.size());
  for (size_t i = 0; i < params.size(); ++i) {
    const ParamSlot& slot = params[i];
    arrays_.push_back({.gradient = gradients[i],
                       .param = slot.param.data<float>(),
                       .copy = slot.copy.absent() ? nullptr : slot.copy.pointer,
                       .n = slot.param.elements(),
                       .not_finite = slot.not_finite});
  }
}

void RuleQueue::add(const RuleStep& step, std::span<const std::pair<size_t, RuleState>> states) {
  for (const auto& [param, state] : states) waiting_[param].push_back({steps_.size(), state});
  steps_.push_back(step);
}

/// Parameters with the same steps share a pass; more steps than one takes are several.
void RuleQueue::run() {
  for (bool left = true; left;) {
    left = false;
    std::map<std::vector<size_t>, std::vector<RuleArrays>> passes;  // by their steps
    for (size_t i = 0; i < arrays_.size(); ++i) {
      std::vector<Waiting>& waiting = waiting_[i];
      const size_t count = std::min(waiting.size(), kMostRules);
      std::vector<size_t> steps;
      RuleArrays arrays = arrays_[i];
      for (size_t s = 0; s < count; ++s) {
        steps.push_back(waiting[s].step);
        arrays.states[s] = waiting[s].state;
      }
      waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(count));
      left |= !waiting.empty();
      if (count > 0) passes[std::move(steps)].push_back(arrays);
    }
    for (const auto& [places, arrays] : passes) {
      std::vector<RuleStep> steps;
      for (const size_t place : places) steps.push_back(steps_[place]);
      run_pass(arrays, steps);
    }
  }
  steps_.clear();
}

void RuleQueue::run_pass(std::span<const RuleArrays> arrays,
                         std::span<const RuleStep> steps) const {
  Device& device = Device::current();
  if (!device.is_cpu()) return device.kernels().update_rules(arrays, steps, device.stream());
  std::vector<int64_t> elements;
  for (const RuleArrays& a : arrays) elements.push_back(a.n);
  const std::vector<ArrayBlock> blocks = cut_into_blocks(elements);
  for_each_block(blocks.size(), [&](size_t b) {
    const auto [array, begin, end] = blocks[b];
    const RuleArrays& a = arrays[static_cast<size_t>(array)];
    const bool finite = cpu::update_by_rules(a, begin, end, steps);
    if (!finite && a.not_finite != nullptr) std::atomic_ref(*a.not_finite).store(1);
  });
}

}  // namespace quintet
