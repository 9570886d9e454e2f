#pragma once
// optax.masked at work, which the fused passes look into (optax.cpp).

#include "runtime/optim/optax/transformation.h"

namespace quintet {

struct MaskedOptions {
  TransformationPtr inner;
  Mask mask;
};

/// The inner transformation, for some of the parameters.
class RunningMasked final : public RunningAround<MaskedOptions> {
 public:
  using RunningAround::RunningAround;

  void init(std::span<const ParamSlot> params) override {
    members_.clear();
    for (size_t i = 0; i < params.size(); ++i)
      if (what().mask.selects("/" + params[i].name)) members_.push_back(i);
    QT_CHECK(!members_.empty() || params.empty(),
             "{}: the mask selects none of the {} parameters (the first is /{}); correct its "
             "expression",
             what().mask.where.empty() ? "optax.masked" : what().mask.where, params.size(),
             params[0].name);
    start_inner(members_of(params));
  }

  void update(Updates& updates) override {
    const std::vector<ParamSlot> params = members_of(updates.params);
    Updates some{params, {}, {}, updates.args, updates.queue};
    for (const size_t i : members_) {
      some.gradients.push_back(updates.gradients[i]);
      some.places.push_back(updates.places[i]);
    }
    some.changed();  // what is known is known of all
    inner_->update(some);
    updates.changed();
  }
  void take_back() override { inner_->take_back(); }
  void add_state(const std::string& prefix, std::vector<StateArray>& arrays) const override {
    inner_->add_state(prefix + "inner_state/", arrays);
  }
  void simulate_sums(const UpdateArgs& args, std::span<const ParamSlot> params) const override {
    inner_->simulate_sums(args, members_of(params));
  }

  const Running& inner() const { return *inner_; }
  const std::vector<size_t>& members() const { return members_; }

 private:
  std::vector<ParamSlot> members_of(std::span<const ParamSlot> params) const {
    std::vector<ParamSlot> some;
    for (const size_t i : members_) some.push_back(params[i]);
    return some;
  }
  std::vector<size_t> members_;  // indices of its parameters
};

}  // namespace quintet
