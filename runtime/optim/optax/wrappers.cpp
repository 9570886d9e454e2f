#include "runtime/optim/optax/wrappers.h"

#include <algorithm>

#include "runtime/optim/gradients.h"
#include "runtime/optim/optax/elementwise.h"
#include "runtime/optim/optax/masked.h"
#include "runtime/optim/path_pattern.h"

namespace quintet {
namespace {

struct LabelledOptions {
  std::vector<std::pair<std::string, TransformationPtr>> transforms;
  Labels labels;
  std::vector<std::pair<PathPattern, std::string>> rules;
  std::vector<TransformationPtr> masked;  // of each label
};

/// A masked transformation for each label.
class RunningLabelled final : public RunningAs<LabelledOptions> {
 public:
  using RunningAs::RunningAs;
  void rebind(const Transformation& like) override {
    RunningAs::rebind(like);
    check_form(what().masked.size() == groups_.size());
    for (size_t i = 0; i < groups_.size(); ++i) groups_[i]->rebind(*what().masked[i]);
  }

  static const std::string* label_of(const LabelledOptions& o, const std::string& path) {
    for (const auto& [pattern, label] : o.rules)
      if (pattern.found_in(path)) return &label;
    return nullptr;
  }

  void init(std::span<const ParamSlot> params) override {
    check(params);
    groups_.clear();
    for (const TransformationPtr& group : what().masked) {
      groups_.push_back(group->start());
      groups_.back()->init(params);
    }
  }
  void update(Updates& updates) override {
    for (const RunningPtr& group : groups_) group->update(updates);
  }
  void take_back() override {
    for (const RunningPtr& group : groups_) group->take_back();
  }
  void add_state(const std::string& prefix, std::vector<StateArray>& arrays) const override {
    for (size_t i = 0; i < groups_.size(); ++i)
      groups_[i]->add_state(fmt::format("{}inner_states/{}/", prefix, what().transforms[i].first),
                            arrays);
  }
  void simulate_sums(const UpdateArgs& args, std::span<const ParamSlot> params) const override {
    for (const RunningPtr& group : groups_) group->simulate_sums(args, params);
  }

 private:
  void check(std::span<const ParamSlot> params) const {
    for (const ParamSlot& slot : params)
      QT_CHECK(label_of(what(), "/" + slot.name) != nullptr,
               "{}: no expression is found in the path /{}; add one for the rest, such as '.*'",
               what().labels.where, slot.name);
    for (const auto& [pattern, label] : what().rules)
      QT_CHECK(params.empty() || std::ranges::any_of(params,
                                                     [&](const ParamSlot& slot) {
                                                       return pattern.found_in("/" + slot.name);
                                                     }),
               "{}: '{}' is found in none of the {} parameters' paths (the first is /{}); correct "
               "or delete it",
               what().labels.where, pattern.expression(), params.size(), params[0].name);
  }
  std::vector<RunningPtr> groups_;
};

struct AccumulatedOptions : MultiStepsOptions {
  TransformationPtr inner{};
};

class RunningMultiSteps final : public RunningAround<AccumulatedOptions> {
 public:
  using RunningAround::RunningAround;

  void init(std::span<const ParamSlot> params) override {
    mini_step_ = host_count();
    gradient_step_ = host_count();
    sums_.init(params, {.name = "acc_grads"});
    start_inner(params);
  }

  void update(Updates& updates) override {
    const int32_t count = mini_step_.count() + 1;
    emitted_ = count >= every_k();
    std::vector<RuleState> states(updates.params.size());
    for (size_t i = 0; i < states.size(); ++i) states[i].first = sums_.pointer(i);
    updates.apply({rules::Accumulate{static_cast<float>(count), what().use_grad_mean, emitted_}},
                  states);
    before_ = mini_step_.count();
    mini_step_.count() = emitted_ ? 0 : count;
    if (!emitted_) return;
    ++gradient_step_.count();
    inner_->update(updates);
  }

  void take_back() override {
    mini_step_.count() = before_;
    if (!emitted_) return;
    --gradient_step_.count();
    inner_->take_back();
  }
  void add_state(const std::string& prefix, std::vector<StateArray>& arrays) const override {
    arrays.push_back(state_of(prefix + "mini_step", mini_step_));
    arrays.push_back(state_of(prefix + "gradient_step", gradient_step_));
    inner_->add_state(prefix + "inner_opt_state/", arrays);
    sums_.add_state(prefix, arrays);
  }
  void simulate_sums(const UpdateArgs& args, std::span<const ParamSlot> params) const override {
    inner_->simulate_sums(args, params);
  }

 private:
  int64_t every_k() const {
    if (const auto* k = std::get_if<int64_t>(&what().every_k)) return *k;
    return static_cast<int64_t>(std::get<Schedule>(what().every_k)(gradient_step_.count()));
  }
  StateBuffer mini_step_, gradient_step_;
  ArraysLikeParams sums_;
  int32_t before_ = 0;  // mini_step before the last update
  bool emitted_ = false;
};

struct IfFiniteOptions {
  TransformationPtr inner;
  int64_t max_consecutive_errors;
};

class RunningIfFinite final : public RunningAround<IfFiniteOptions> {
 public:
  using RunningAround::RunningAround;

  void init(std::span<const ParamSlot> params) override {
    in_a_row_ = host_count();
    total_ = host_count();
    last_finite_ = zero_state(DType::boolean, {}, Device::cpu());
    last_finite() = 1;
    start_inner(params);
  }

  /// The host has to know: on a GPU it waits.
  void update(Updates& updates) override {
    before_ = {in_a_row_.count(), total_.count(), last_finite()};
    const bool finite =
        check_gradients(updates.slots(), {.reducer = updates.args.reducer}).all_finite;
    last_finite() = finite ? 1 : 0;
    in_a_row_.count() = finite ? 0 : in_a_row_.count() + 1;
    if (!finite) ++total_.count();
    updated_ = finite || in_a_row_.count() > what().max_consecutive_errors;
    if (updated_)
      inner_->update(updates);
    else
      updates.apply({rules::Zero{}});
  }

  void take_back() override {
    in_a_row_.count() = before_.in_a_row;
    total_.count() = before_.total;
    last_finite() = before_.last_finite;
    if (updated_) inner_->take_back();
  }
  void add_state(const std::string& prefix, std::vector<StateArray>& arrays) const override {
    arrays.push_back(state_of(prefix + "notfinite_count", in_a_row_));
    arrays.push_back(state_of(prefix + "last_finite", last_finite_));
    arrays.push_back(state_of(prefix + "total_notfinite", total_));
    inner_->add_state(prefix + "inner_state/", arrays);
  }
  void simulate_sums(const UpdateArgs& args, std::span<const ParamSlot> params) const override {
    check_gradients(params, {.reducer = args.reducer});
    inner_->simulate_sums(args, params);
  }
  bool takes_not_finite() const override { return true; }

 private:
  uint8_t& last_finite() const { return *static_cast<uint8_t*>(last_finite_.view.pointer); }
  StateBuffer in_a_row_, total_, last_finite_;
  struct {
    int32_t in_a_row = 0, total = 0;
    uint8_t last_finite = 1;
  } before_;
  bool updated_ = false;
};

struct ZeroNansOptions {};

class RunningZeroNans final : public RunningAs<ZeroNansOptions> {
 public:
  using RunningAs::RunningAs;

  void init(std::span<const ParamSlot> params) override {
    const int64_t count[] = {std::ssize(params)};
    found_ = zero_state(DType::i32, count, Device::current());
    names_.clear();
    for (const ParamSlot& slot : params) names_.push_back(slot.name);
  }

  void update(Updates& updates) override {
    const int64_t bytes = found_.view.elements() * size_of(DType::i32);
    found_.device->fill(found_.buffer.get(), 0, bytes);
    std::vector<RuleState> states(updates.params.size());
    for (size_t i = 0; i < states.size(); ++i) states[i].found = found_.view.data<int32_t>() + i;
    updates.apply({rules::ZeroNans{}}, states);
  }

  /// An int32 that is 0 or 1 begins with the byte that a bool is.
  void add_state(const std::string& prefix, std::vector<StateArray>& arrays) const override {
    for (size_t i = 0; i < names_.size(); ++i) {
      View view = View::of(found_.view.data<int32_t>() + i, {});
      view.dtype = DType::boolean;
      arrays.push_back({prefix + "found_nan/" + names_[i], {}, view, found_.device});
    }
  }
  bool takes_not_finite() const override { return true; }

 private:
  StateBuffer found_;
  std::vector<std::string> names_;
};

}  // namespace

Mask mask_of(const std::string& expression) {
  return {.selects = [pattern = PathPattern(expression)](const std::string& path) {
    return pattern.found_in(path);
  }};
}

TransformationPtr masked(TransformationPtr inner, const Mask& mask) {
  check_inner(inner, "optax.masked: inner");
  if (!mask.selects) return masked(std::move(inner), mask_of(""));
  return transformation<RunningMasked>(MaskedOptions{std::move(inner), mask});
}

TransformationPtr multi_transform(std::vector<std::pair<std::string, TransformationPtr>> transforms,
                                  Labels labels) {
  LabelledOptions o{std::move(transforms), std::move(labels), {}, {}};
  for (const auto& [expression, label] : o.labels.rules) {
    QT_CHECK(std::ranges::any_of(o.transforms, [&](const auto& t) { return t.first == label; }),
             "{}: '{}' gives the label '{}', for which transforms has no transformation",
             o.labels.where, expression, label);
    o.rules.emplace_back(PathPattern(expression), label);
  }
  for (const auto& [label, inner] : o.transforms)
    o.masked.push_back(masked(inner, {[rules = o.rules, wanted = label](const std::string& path) {
                                        const auto rule = std::ranges::find_if(
                                            rules,
                                            [&](const auto& r) { return r.first.found_in(path); });
                                        return rule != rules.end() && rule->second == wanted;
                                      },
                                      fmt::format("{}: label '{}'", o.labels.where, label)}));
  return transformation<RunningLabelled>(std::move(o));
}

TransformationPtr set_to_zero() {
  return elementwise({.step = [](int32_t) { return RuleStep{rules::Zero{}}; }});
}

TransformationPtr multi_steps(TransformationPtr inner, const MultiStepsOptions& options) {
  check_inner(inner, "optax.MultiSteps: opt");
  const auto* k = std::get_if<int64_t>(&options.every_k);
  QT_CHECK(k == nullptr || *k > 0, "optax.MultiSteps: every_k_schedule must be positive, got {}",
           *k);
  return transformation<RunningMultiSteps>(AccumulatedOptions{options, std::move(inner)});
}

TransformationPtr apply_if_finite(TransformationPtr inner, int64_t max_consecutive_errors) {
  check_inner(inner, "optax.apply_if_finite: inner");
  return transformation<RunningIfFinite>(IfFiniteOptions{std::move(inner), max_consecutive_errors});
}

TransformationPtr zero_nans() { return transformation<RunningZeroNans>(ZeroNansOptions{}); }

}  // namespace quintet
