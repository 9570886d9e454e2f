#include "runtime/plan/plan_cache.h"

#include <unordered_map>

namespace quintet {

class PlanCache {
 public:
  std::unordered_map<std::string, Plan> plans;
};

namespace {

void append(std::string& key, int64_t number) {
  key.append(reinterpret_cast<const char*>(&number), sizeof number);
}

/// All that a plan depends on.
std::string key_of(const Op& op, const Tensors& inputs, const std::vector<ResultShape>& shapes,
                   const Attrs& attrs, const OutputMask& make) {
  std::string key;
  append(key, static_cast<int64_t>(op.index));
  for (const Tensor& x : inputs) {
    if (!x) {
      key += '-';
      continue;
    }
    for (size_t i = 0; i < x.spec().axes.size(); ++i) {
      key += x.spec().axes[i].name;
      append(key, x.global_slice().sizes[i]);
      for (const std::string& axis : x.layout().dims[i]) key += axis + ',';
    }
    key += name_of(x.spec().dtype);
    for (const std::string& axis : x.layout().partial) key += axis + '+';
    key += ';';
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    key += make[i] ? '1' : '0';
    for (const int64_t size : shapes[i].global_slice.sizes) append(key, size);
  }
  for (const RuleSize& size : op.rule.sizes) append(key, attrs.get<int64_t>(size.letter));
  return key;
}

}  // namespace

const Plan& planned(const Op& op, const Tensors& inputs, const std::vector<ResultShape>& shapes,
                    const Attrs& attrs, const OutputMask& make, const Sharding& sharding) {
  if (sharding.plans() == nullptr) sharding.plans() = std::make_shared<PlanCache>();
  std::unordered_map<std::string, Plan>& plans = sharding.plans()->plans;
  const std::string key = key_of(op, inputs, shapes, attrs, make);
  const auto found = plans.find(key);
  if (found != plans.end()) return found->second;
  return plans.emplace(key, plan_op(op, inputs, shapes, attrs, make, sharding)).first->second;
}

}  // namespace quintet
