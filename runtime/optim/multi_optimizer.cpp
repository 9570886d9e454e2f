#include "runtime/optim/multi_optimizer.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/optim/path_pattern.h"

namespace quintet {
namespace {

class MultiOptimizer final : public Optimizer {
 public:
  explicit MultiOptimizer(std::vector<std::pair<ParamGroup, OptimizerPtr>> groups) {
    QT_CHECK(!groups.empty(),
             "MultiOptimizer: traversals_and_optimizers: expected one group or more, found none: "
             "nothing would be trained");
    for (auto& [group, optimizer] : groups) {
      QT_CHECK(!optimizer->example_clip(),
               "{}{}MultiOptimizer: an optimizer that clips the gradient of each example, which is "
               "that of all "
               "parameters, is a run's only one",
               group.where, group.where.empty() ? "" : ": ");
      groups_.push_back({std::move(group), std::move(optimizer), {}, {}});
    }
  }

  void init(std::span<const ParamSlot> params) override {
    for (Group& group : groups_) group.members.clear();
    for (size_t i = 0; i < params.size(); ++i) {
      const Group* owner = nullptr;
      for (Group& group : groups_) {
        if (!group.what.traversal("/" + params[i].name)) continue;
        QT_CHECK(
            owner == nullptr,
            "MultiOptimizer: two groups match parameter {}; each parameter may have one optimizer",
            params[i].name);
        owner = &group;
        group.members.push_back(i);
      }
    }
    for (size_t i = 0; i < groups_.size(); ++i)
      QT_CHECK(!groups_[i].members.empty() || params.empty(),
               "{}{}MultiOptimizer: traversals_and_optimizers[{}] matches none of the {} "
               "parameters (the first is /{}); correct its pattern or delete the group",
               groups_[i].what.where, groups_[i].what.where.empty() ? "" : ": ", i, params.size(),
               params[0].name);
    for (Group& group : groups_) group.optimizer->init(slots_of(group, params));
  }

  void update(const UpdateArgs& args, std::span<const ParamSlot> params) override {
    for (Group& group : groups_) group.optimizer->update(of_group(args), slots_of(group, params));
  }
  void simulate_sums(const UpdateArgs& args, std::span<const ParamSlot> params) override {
    for (Group& group : groups_)
      group.optimizer->simulate_sums(of_group(args), slots_of(group, params));
  }

  UpdateMemory update_memory(int64_t multiprocessors) const override {
    UpdateMemory all;
    for (const Group& group : groups_) {
      const UpdateMemory of_group = group.optimizer->update_memory(multiprocessors);
      all.kept += of_group.kept;
      all.scratch = std::max(all.scratch, of_group.scratch);
    }
    return all;
  }
  void take_back() override {
    for (Group& group : groups_) group.optimizer->take_back();
  }
  bool takes_not_finite() const override {
    return std::ranges::all_of(
        groups_, [](const Group& group) { return group.optimizer->takes_not_finite(); });
  }

  std::vector<StateArray> state() override {
    std::vector<StateArray> arrays;
    for (size_t i = 0; i < groups_.size(); ++i)
      for (StateArray& array : groups_[i].optimizer->state()) {
        const bool named_by_parameter = std::any_of(
            groups_[i].slots.begin(), groups_[i].slots.end(),
            [&](const ParamSlot& slot) { return array.name.starts_with(slot.name + "/"); });
        if (!named_by_parameter) array.name = fmt::format("{}/{}", i, array.name);
        arrays.push_back(std::move(array));
      }
    return arrays;
  }

 private:
  struct Group {
    ParamGroup what;
    OptimizerPtr optimizer;
    std::vector<size_t> members;   // indices of its parameters
    std::vector<ParamSlot> slots;  // those parameters, as of the last call
  };

  /// A group clips by its own gradients.
  static UpdateArgs of_group(UpdateArgs args) {
    args.gradient_norm.reset();
    args.squares = nullptr;
    return args;
  }
  static std::span<const ParamSlot> slots_of(Group& group, std::span<const ParamSlot> params) {
    group.slots.clear();
    for (size_t i : group.members) group.slots.push_back(params[i]);
    return group.slots;
  }

  std::vector<Group> groups_;
};

}  // namespace

Traversal matching(const std::string& expression) {
  return [pattern = PathPattern(expression)](const std::string& path) {
    return pattern.found_in(path);
  };
}

OptimizerPtr multi_optimizer(std::vector<std::pair<ParamGroup, OptimizerPtr>> groups) {
  return std::make_shared<MultiOptimizer>(std::move(groups));
}

}  // namespace quintet
