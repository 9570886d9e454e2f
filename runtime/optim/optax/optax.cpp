#include "runtime/optim/optax/optax.h"

#include <algorithm>
#include <cmath>

#include "kernels/gpu/gpu_kernels.h"
#include "runtime/optim/blocks.h"
#include "runtime/optim/device_clip.h"
#include "runtime/optim/gradients.h"
#include "runtime/optim/optax/masked.h"
#include "runtime/optim/optax/norms.h"

namespace quintet {
namespace {

/// What a chain amounts to if one pass of a kernel can do it: clips, then adam, lion or momentum
/// (or none), then weight decay, which may be masked, then the learning rate.
struct FusedPlan {
  const RunningClip* global_norm = nullptr;
  const Fusable::Clip* clip = nullptr;
  RunningElementwise* core = nullptr;
  double decay = 0;
  std::vector<bool> decays{};  // by parameter; empty: all
  RunningElementwise* rate = nullptr;
};

/// Its numbers for one update.
struct FusedStep {
  cpu::GradientUse use;
  std::variant<cpu::AdamStep, cpu::LionStep, cpu::SgdStep> numbers;

  /// The same for parameters that do not decay.
  FusedStep without_decay() const {
    FusedStep step = *this;
    if (auto* adam = std::get_if<cpu::AdamStep>(&step.numbers)) adam->decay = 0;
    if (auto* lion = std::get_if<cpu::LionStep>(&step.numbers)) lion->decay = 0;
    return step;
  }
};

/// Takes the members of a chain one after the other, where they are what a plan has next.
class PlanReader {
 public:
  PlanReader(Running& running, size_t params) : params_(params) {
    std::vector<Running*> all;
    running.add_leaves(all);
    for (Running* leaf : all)
      if (as<Fusable::Identity>(leaf) == nullptr) leaves_.push_back(leaf);
  }

  std::optional<FusedPlan> plan() {
    FusedPlan plan;
    plan.global_norm = at_ < leaves_.size() ? dynamic_cast<RunningClip*>(leaves_[at_]) : nullptr;
    if (plan.global_norm != nullptr) ++at_;
    plan.clip = next<Fusable::Clip>();
    const bool moments = next<AdamOptions>() != nullptr || next<ScaleByLion>() != nullptr;
    if (moments || next<Fusable::Trace>() != nullptr) plan.core = last();
    if (moments) read_decay(plan);
    if (next<Fusable::Rate>() != nullptr) plan.rate = last();
    const bool fits = plan.rate != nullptr && at_ == leaves_.size() &&
                      (plan.core == nullptr || plan.core->has_float_state());
    return fits ? std::optional(std::move(plan)) : std::nullopt;
  }

 private:
  template <typename T>
  static const T* as(const Running* running) {
    const auto* elementwise = dynamic_cast<const RunningElementwise*>(running);
    return elementwise != nullptr ? elementwise->fuses<T>() : nullptr;
  }
  template <typename T>
  const T* next() {
    const T* found = at_ < leaves_.size() ? as<T>(leaves_[at_]) : nullptr;
    if (found != nullptr) ++at_;
    return found;
  }
  RunningElementwise* last() const { return dynamic_cast<RunningElementwise*>(leaves_[at_ - 1]); }

  void read_decay(FusedPlan& plan) {
    if (const auto* decay = next<Fusable::Decay>()) {
      plan.decay = decay->weight_decay;
      return;
    }
    const auto* some =
        at_ < leaves_.size() ? dynamic_cast<const RunningMasked*>(leaves_[at_]) : nullptr;
    const auto* decay = some != nullptr ? as<Fusable::Decay>(&some->inner()) : nullptr;
    if (decay == nullptr) return;
    ++at_;
    plan.decay = decay->weight_decay;
    plan.decays.assign(params_, false);
    for (const size_t i : some->members()) plan.decays[i] = true;
  }

  size_t params_;
  std::vector<Running*> leaves_;
  size_t at_ = 0;
};

class OptaxOptimizer final : public Optimizer {
 public:
  explicit OptaxOptimizer(TransformationPtr transformation)
      : transformation_(std::move(transformation)) {}

  void init(std::span<const ParamSlot> params) override;
  void update(const UpdateArgs& args, std::span<const ParamSlot> params) override;
  void simulate_sums(const UpdateArgs& args, std::span<const ParamSlot> params) override;
  std::vector<StateArray> state() override;
  void take_back() override { running_->take_back(); }
  bool takes_not_finite() const override { return running_->takes_not_finite(); }
  std::optional<double> example_clip() const override { return transformation_->example_clip(); }
  bool updates_apart() const override { return fused_.has_value(); }
  void update_part(const UpdateArgs& args, std::span<const ParamSlot> params, size_t begin,
                   size_t end) override;

 private:
  FusedStep fused_step(const UpdateArgs& args, std::span<const ParamSlot> params) const;
  void run_fused(const UpdateArgs& args, std::span<const ParamSlot> params);
  void run_fused_on_cpu(const FusedStep& step, std::span<const ParamSlot> params, size_t begin,
                        size_t end);
  void count_fused();
  std::vector<FloatPointer> gradients_of(std::span<const ParamSlot> params, size_t begin,
                                         size_t end);
  bool decays(size_t i) const { return fused_->decays.empty() || fused_->decays[i]; }

  TransformationPtr transformation_;
  RunningPtr running_;
  std::optional<FusedPlan> fused_;  // points into running_
  std::vector<std::string> names_;
  std::vector<int64_t> elements_;
  std::vector<ArrayBlock> blocks_;
  std::vector<StateBuffer> zeros_;  // in the place of absent gradients
  DeviceClip clip_;
};

void OptaxOptimizer::init(std::span<const ParamSlot> params) {
  *this = OptaxOptimizer(std::move(transformation_));
  for (const ParamSlot& slot : params) {
    names_.push_back(slot.name);
    elements_.push_back(slot.param.elements());
  }
  blocks_ = cut_into_blocks(elements_);
  zeros_.resize(params.size());
  running_ = transformation_->start();
  running_->init(params);
  fused_ = PlanReader(*running_, params.size()).plan();
}

std::vector<StateArray> OptaxOptimizer::state() {
  std::vector<StateArray> arrays;
  running_->add_state("", arrays);
  return arrays;
}

/// Of parameters [begin, end); those of others are null.
std::vector<FloatPointer> OptaxOptimizer::gradients_of(std::span<const ParamSlot> params,
                                                       size_t begin, size_t end) {
  QT_ASSERT(params.size() == names_.size());
  std::vector<FloatPointer> gradients(params.size());
  for (size_t i = begin; i < end; ++i) {
    QT_ASSERT(params[i].name == names_[i] && params[i].param.elements() == elements_[i]);
    if (params[i].grad.absent()) {
      // A fresh one each time: transformations write to gradients.
      zeros_[i] = zero_state_like(params[i].param, Device::current());
      gradients[i] = zeros_[i].floats();
    } else {
      gradients[i] = FloatPointer(params[i].grad);
    }
  }
  return gradients;
}

void OptaxOptimizer::update(const UpdateArgs& args, std::span<const ParamSlot> params) {
  if (fused_) {
    run_fused(args, params);
    return count_fused();
  }
  const std::vector<FloatPointer> gradients = gradients_of(params, 0, params.size());
  RuleQueue queue(params, gradients);
  Updates updates{params, gradients, {}, args, queue};
  for (size_t i = 0; i < params.size(); ++i) updates.places.push_back(i);
  running_->update(updates);
  updates.apply({rules::Apply{}});
  queue.run();
}

void OptaxOptimizer::update_part(const UpdateArgs& args, std::span<const ParamSlot> params,
                                 size_t begin, size_t end) {
  if (!fused_) return Optimizer::update_part(args, params, begin, end);
  QT_ASSERT(args.gradient_norm || fused_->global_norm == nullptr);
  run_fused_on_cpu(fused_step(args, params), params, begin, end);
  if (end == params.size()) count_fused();
}

void OptaxOptimizer::count_fused() {
  if (fused_->core != nullptr) fused_->core->count_up();
  fused_->rate->count_up();
}

FusedStep OptaxOptimizer::fused_step(const UpdateArgs& args,
                                     std::span<const ParamSlot> params) const {
  FusedStep step;
  if (fused_->global_norm != nullptr && Device::current().is_cpu())
    step.use.scale = fused_->global_norm->scale(
        args.gradient_norm ? *args.gradient_norm
                           : check_gradients(params, {.reducer = args.reducer}).norm);
  if (fused_->clip != nullptr) step.use.limit = f32(fused_->clip->max_delta);
  const float rate = value_at(fused_->rate->fuses<Fusable::Rate>()->rate, fused_->rate->count());
  const RunningElementwise* core = fused_->core;
  const auto* momentum = core != nullptr ? core->fuses<Fusable::Trace>() : nullptr;
  if (core != nullptr && core->fuses<AdamOptions>() != nullptr)
    step.numbers = adam_step(*core->fuses<AdamOptions>(), core->count(), rate, fused_->decay);
  else if (core != nullptr && core->fuses<ScaleByLion>() != nullptr)
    step.numbers = lion_step(*core->fuses<ScaleByLion>(), rate, fused_->decay);
  else
    step.numbers = cpu::SgdStep{momentum != nullptr ? f32(momentum->decay) : 0.0f, rate,
                                momentum != nullptr && momentum->nesterov};
  return step;
}

/// On a GPU.
void launch(const FusedStep& step, std::span<const UpdateArrays> arrays,
            const UpdateControl* control) {
  if (arrays.empty()) return;
  Device& device = Device::current();
  const GpuKernels& kernels = device.kernels();
  if (const auto* adam = std::get_if<cpu::AdamStep>(&step.numbers))
    kernels.update_adam(arrays, *adam, step.use, control, device.stream());
  else if (const auto* lion = std::get_if<cpu::LionStep>(&step.numbers))
    kernels.update_lion(arrays, *lion, step.use, control, device.stream());
  else
    kernels.update_sgd(arrays, std::get<cpu::SgdStep>(step.numbers), step.use, control,
                       device.stream());
}

void OptaxOptimizer::run_fused(const UpdateArgs& args, std::span<const ParamSlot> params) {
  const FusedStep step = fused_step(args, params);
  if (Device::current().is_cpu()) return run_fused_on_cpu(step, params, 0, params.size());
  const RunningElementwise* core = fused_->core;
  std::vector<UpdateArrays> with_decay, without;
  for (size_t i = 0; i < params.size(); ++i) {
    const ParamSlot& slot = params[i];
    (decays(i) ? with_decay : without)
        .push_back({.gradient = FloatPointer(slot.grad),
                    .param = slot.param.data<float>(),
                    .first = core != nullptr ? core->state(0, i) : nullptr,
                    .second = core != nullptr ? core->state(1, i) : nullptr,
                    .copy = slot.copy.absent() ? nullptr : slot.copy.pointer,
                    .n = elements_[i],
                    .not_finite = slot.not_finite});
  }
  const UpdateControl* control = clip_.decide(
      args, params, fused_->global_norm != nullptr ? fused_->global_norm->max_norm() : 0);
  launch(step, with_decay, control);
  launch(step.without_decay(), without, control);
}

void OptaxOptimizer::run_fused_on_cpu(const FusedStep& step, std::span<const ParamSlot> params,
                                      size_t begin, size_t end) {
  const std::vector<FloatPointer> gradients = gradients_of(params, begin, end);
  const RunningElementwise* core = fused_->core;
  const FusedStep without_decay = step.without_decay();
  const auto array_of = [](const ArrayBlock& block) { return static_cast<size_t>(block.array); };
  const auto first = std::ranges::lower_bound(blocks_, begin, {}, array_of);
  const auto last = std::ranges::lower_bound(first, blocks_.end(), end, {}, array_of);
  for_each_block(static_cast<size_t>(last - first), [&](size_t b) {
    const auto [array, from, to] = first[static_cast<std::ptrdiff_t>(b)];
    const auto i = static_cast<size_t>(array);
    const int64_t n = to - from;
    const FusedStep& own = decays(i) ? step : without_decay;
    const FloatPointer gradient = gradients[i] + from;
    float* param = params[i].param.data<float>() + from;
    float* mu = core != nullptr ? core->state(0, i) + from : nullptr;
    if (const auto* adam = std::get_if<cpu::AdamStep>(&own.numbers))
      params[i].watch(
          cpu::adam_update(n, *adam, own.use, gradient, param, mu, core->state(1, i) + from));
    else if (const auto* lion = std::get_if<cpu::LionStep>(&own.numbers))
      params[i].watch(cpu::lion_update(n, *lion, own.use, gradient, param, mu));
    else
      params[i].watch(
          cpu::sgd_update(n, std::get<cpu::SgdStep>(own.numbers), own.use, gradient, param, mu));
  });
}

/// Norms that clips take: of all gradients as given, which may be known, or of what a chain made of
/// them.
void OptaxOptimizer::simulate_sums(const UpdateArgs& args, std::span<const ParamSlot> params) {
  if (!fused_) return running_->simulate_sums(args, params);
  DeviceClip::simulate(args, params,
                       fused_->global_norm != nullptr ? fused_->global_norm->max_norm() : 0);
}

class RunningChain final : public RunningAs<std::vector<TransformationPtr>> {
 public:
  using RunningAs::RunningAs;
  void rebind(const Transformation& like) override {
    RunningAs::rebind(like);
    check_form(what().size() == members_.size());
    for (size_t i = 0; i < members_.size(); ++i) members_[i]->rebind(*what()[i]);
  }
  void init(std::span<const ParamSlot> params) override {
    for (const TransformationPtr& member : what()) members_.push_back(member->start());
    for (const RunningPtr& member : members_) member->init(params);
  }
  void update(Updates& updates) override {
    for (const RunningPtr& member : members_) member->update(updates);
  }
  void take_back() override {
    for (const RunningPtr& member : members_) member->take_back();
  }
  void add_state(const std::string& prefix, std::vector<StateArray>& arrays) const override {
    for (size_t i = 0; i < members_.size(); ++i)
      members_[i]->add_state(fmt::format("{}{}/", prefix, i), arrays);
  }
  void simulate_sums(const UpdateArgs& args, std::span<const ParamSlot> params) const override {
    for (const RunningPtr& member : members_) member->simulate_sums(args, params);
  }
  /// The first sees gradients as they are given.
  bool takes_not_finite() const override {
    return !members_.empty() && members_[0]->takes_not_finite();
  }
  void add_leaves(std::vector<Running*>& leaves) override {
    for (const RunningPtr& member : members_) member->add_leaves(leaves);
  }
  static std::optional<double> example_clip(const std::vector<TransformationPtr>& members) {
    return members.empty() ? std::nullopt : members[0]->example_clip();
  }

 private:
  std::vector<RunningPtr> members_;
};

}  // namespace

void Updates::apply(RuleStep step, std::span<const RuleState> states) {
  if (step.control == nullptr) step.control = args.control;
  std::vector<std::pair<size_t, RuleState>> placed;
  for (size_t i = 0; i < places.size(); ++i)
    placed.emplace_back(places[i], states.empty() ? RuleState{} : states[i]);
  queue.add(step, placed);
  changed();
}

std::vector<ParamSlot> Updates::slots() {
  queue.run();
  std::vector<ParamSlot> slots(params.begin(), params.end());
  for (size_t i = 0; i < slots.size(); ++i) {
    slots[i].grad = params[i].param;
    slots[i].grad.pointer = gradients[i].pointer;
    slots[i].grad.dtype = gradients[i].is_bf16 ? DType::bf16 : DType::f32;
  }
  return slots;
}

StateBuffer host_count() { return zero_state(DType::i32, {}, Device::cpu()); }
StateArray state_of(const std::string& name, const StateBuffer& count) {
  return {name, {}, count.view, count.device};
}

void check_form(bool same) {
  QT_CHECK(same,
           "a number makes another transformation of inner_factory; name its parameter in "
           "static_args");
}

void check_inner(const TransformationPtr& inner, const char* outer) {
  QT_CHECK(inner != nullptr, "{} is None", outer);
  QT_CHECK(!inner->example_clip(),
           "{}: a transformation that clips the gradient of each example is the first of a chain "
           "and inside no other, as "
           "it makes the gradient of the batch",
           outer);
}

TransformationPtr chain(std::vector<TransformationPtr> transformations) {
  for (size_t i = 0; i < transformations.size(); ++i) {
    if (i > 0) check_inner(transformations[i], "chain: a transformation");
    QT_CHECK(transformations[i] != nullptr, "chain: a transformation is None");
  }
  return transformation<RunningChain>(std::move(transformations));
}

OptimizerPtr optax_optimizer(TransformationPtr transformation) {
  return std::make_shared<OptaxOptimizer>(std::move(transformation));
}

}  // namespace quintet
