#include "runtime/optim/optax/optax.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/gpu/gpu_kernels.h"
#include "runtime/optim/blocks.h"
#include "runtime/optim/device_clip.h"
#include "runtime/optim/gradients.h"
#include "runtime/optim/optax/transformation.h"
#include "runtime/optim/state_buffer.h"

namespace quintet {
namespace {

float f32(double x) { return static_cast<float>(x); }

/// 1 / (1 - beta^t) in float32, as optax corrects its moments' bias.
float bias_correction(double beta, int32_t t) {
  return 1.0f / (1.0f - std::pow(f32(beta), static_cast<float>(t)));
}

constexpr int32_t kMostUpdates = std::numeric_limits<int32_t>::max();

/// An elementary transformation with its state, an array a parameter in each of mu and nu.
struct Stage {
  Transformation::Part part;
  StateBuffer count;                // absent (no buffer) for those that do not count
  std::vector<StateBuffer> mu, nu;  // trace lies in mu

  template <typename T>
  const T* as() const {
    return std::get_if<T>(&part.elementary);
  }
};

float learning_rate_of(const Stage& stage) {
  const ScalarOrSchedule& rate = stage.as<ScaleByLearningRate>()->rate;
  if (const double* constant = std::get_if<double>(&rate)) return f32(*constant);
  return std::get<Schedule>(rate)(stage.count.count());
}

cpu::AdamStep adam_step(const Stage& stage, float rate, double decay) {
  const AdamOptions& o = stage.as<ScaleByAdam>()->options;
  const int32_t t = stage.count.count() + 1;
  const float corrected = bias_correction(o.b1, t);
  return {.b1 = f32(o.b1),
          .one_minus_b1 = f32(1 - o.b1),
          .b2 = f32(o.b2),
          .one_minus_b2 = f32(1 - o.b2),
          .mu_use = o.nesterov ? f32(o.b1) * bias_correction(o.b1, t + 1) : corrected,
          .gradient_use = o.nesterov ? f32(1 - o.b1) * corrected : 0.0f,
          .nu_use = bias_correction(o.b2, t),
          .eps = f32(o.eps),
          .eps_root = f32(o.eps_root),
          .rate = rate,
          .decay = f32(decay)};
}

cpu::LionStep lion_step(const Stage& stage, float rate, double decay) {
  const ScaleByLion& o = *stage.as<ScaleByLion>();
  return {f32(o.b1), f32(1 - o.b1), f32(o.b2), f32(1 - o.b2), rate, f32(decay)};
}

/// What a chain amounts to if one pass of a kernel can do it: clips, then adam, lion or momentum
/// (or none), then weight decay, then the learning rate.
struct FusedPlan {
  const ClipByGlobalNorm* global_norm = nullptr;
  const Clip* clip = nullptr;
  Stage* core = nullptr;
  double decay = 0;
  Stage* rate = nullptr;
};

/// Its numbers for one update.
struct FusedStep {
  cpu::GradientUse use;
  std::variant<cpu::AdamStep, cpu::LionStep, cpu::SgdStep> numbers;
};

float clip_scale(const ClipByGlobalNorm& clip, double norm) {
  return norm < clip.max_norm ? 1.0f : f32(clip.max_norm / norm);
}

/// One number a parameter, of its block; of the global array afterwards.
void sum_over_ranks(std::vector<double>& numbers, std::span<const ParamSlot> params,
                    Reducer* reducer) {
  Bucket bucket;
  for (size_t i = 0; i < numbers.size(); ++i) bucket.add({&numbers[i], 1}, params[i].shard_axes());
  bucket.sum(reducer);
}

class OptaxOptimizer final : public Optimizer {
 public:
  explicit OptaxOptimizer(TransformationPtr transformation)
      : transformation_(std::move(transformation)) {
    std::vector<Transformation::Part> parts;
    transformation_->flatten("", parts);
    for (Transformation::Part& part : parts)
      stages_.push_back({.part = std::move(part), .count = {}, .mu = {}, .nu = {}});
    find_fused_plan();
  }

  void init(std::span<const ParamSlot> params) override;
  void update(const UpdateArgs& args, std::span<const ParamSlot> params) override;
  void simulate_sums(const UpdateArgs& args, std::span<const ParamSlot> params) override;
  std::vector<StateArray> state() override;
  void take_back() override;

 private:
  void find_fused_plan();
  FusedStep fused_step(const UpdateArgs& args, std::span<const ParamSlot> params) const;
  void run_fused(const UpdateArgs& args, std::span<const ParamSlot> params);
  void run_fused_on_cpu(const FusedStep& step, std::span<const ParamSlot> params);
  void run_stages(const UpdateArgs& args, std::span<const ParamSlot> params);
  void run_stage(Stage& stage, const UpdateArgs& args, std::span<const ParamSlot> params,
                 std::span<float* const> gradients);
  std::vector<float*> gradients_of(std::span<const ParamSlot> params);
  void run_stages_on_gpu(const UpdateArgs& args, std::span<const ParamSlot> params);

  TransformationPtr transformation_;
  std::vector<Stage> stages_;
  std::optional<FusedPlan> fused_;  // points into stages_
  std::vector<std::string> names_;
  std::vector<std::vector<std::string>> axes_;
  std::vector<MeshAxes> mesh_axes_;
  std::vector<int64_t> elements_;
  std::vector<ArrayBlock> blocks_;
  std::vector<StateBuffer> zeros_;  // in the place of absent gradients
  DeviceClip clip_;
};

void OptaxOptimizer::init(std::span<const ParamSlot> params) {
  *this = OptaxOptimizer(std::move(transformation_));
  for (const ParamSlot& slot : params) {
    names_.push_back(slot.name);
    axes_.push_back(names_of(slot.axes));
    mesh_axes_.push_back(slot.shard_axes());
    elements_.push_back(slot.param.elements());
  }
  blocks_ = cut_into_blocks(elements_);
  zeros_.resize(params.size());
  Device& device = Device::current();
  for (Stage& stage : stages_) {
    const auto* rate = stage.as<ScaleByLearningRate>();
    const bool adam = stage.as<ScaleByAdam>() != nullptr, lion = stage.as<ScaleByLion>() != nullptr;
    if (adam || lion || (rate != nullptr && std::holds_alternative<Schedule>(rate->rate)))
      stage.count = zero_state(DType::i32, {}, Device::cpu());
    for (const ParamSlot& slot : params) {
      if (adam || lion || stage.as<Trace>() != nullptr)
        stage.mu.push_back(zero_state_like(slot.param, device));
      if (adam) stage.nu.push_back(zero_state_like(slot.param, device));
    }
  }
}

std::vector<StateArray> OptaxOptimizer::state() {
  std::vector<StateArray> arrays;
  for (const Stage& stage : stages_) {
    const std::string& prefix = stage.part.state_prefix;
    const auto add = [&](const char* field, const std::vector<StateBuffer>& buffers) {
      for (size_t i = 0; i < buffers.size(); ++i)
        arrays.push_back({prefix + field + "/" + names_[i], axes_[i], buffers[i].view,
                          buffers[i].device, mesh_axes_[i]});
    };
    if (stage.count.buffer != nullptr)
      arrays.push_back({prefix + "count", {}, stage.count.view, stage.count.device});
    add(stage.as<Trace>() != nullptr ? "trace" : "mu", stage.mu);
    add("nu", stage.nu);
  }
  return arrays;
}

void OptaxOptimizer::find_fused_plan() {
  FusedPlan plan;
  std::vector<Stage*> todo;
  for (Stage& stage : stages_)
    if (stage.as<Identity>() == nullptr) todo.push_back(&stage);
  size_t i = 0;
  const auto next = [&]<typename T>(const T*) -> const T* {
    const T* found = i < todo.size() ? todo[i]->as<T>() : nullptr;
    if (found != nullptr) ++i;
    return found;
  };
  plan.global_norm = next(static_cast<ClipByGlobalNorm*>(nullptr));
  plan.clip = next(static_cast<Clip*>(nullptr));
  const bool moments = next(static_cast<ScaleByAdam*>(nullptr)) != nullptr ||
                       next(static_cast<ScaleByLion*>(nullptr)) != nullptr;
  if (moments || next(static_cast<Trace*>(nullptr)) != nullptr) plan.core = todo[i - 1];
  if (moments)
    if (const auto* decay = next(static_cast<AddDecayedWeights*>(nullptr)))
      plan.decay = decay->weight_decay;
  if (next(static_cast<ScaleByLearningRate*>(nullptr)) != nullptr) plan.rate = todo[i - 1];
  if (plan.rate != nullptr && i == todo.size()) fused_ = plan;
}

std::vector<float*> OptaxOptimizer::gradients_of(std::span<const ParamSlot> params) {
  QT_ASSERT(params.size() == names_.size());
  std::vector<float*> gradients;
  for (size_t i = 0; i < params.size(); ++i) {
    QT_ASSERT(params[i].name == names_[i] && params[i].param.elements() == elements_[i]);
    if (params[i].grad.absent()) {
      // A fresh one each time: stages may write to gradients.
      zeros_[i] = zero_state_like(params[i].param, Device::current());
      gradients.push_back(zeros_[i].floats());
    } else {
      gradients.push_back(params[i].grad.data<float>());
    }
  }
  return gradients;
}

void OptaxOptimizer::update(const UpdateArgs& args, std::span<const ParamSlot> params) {
  if (fused_)
    run_fused(args, params);
  else if (Device::current().is_cpu())
    run_stages(args, params);
  else
    run_stages_on_gpu(args, params);
  for (Stage& stage : stages_)
    if (stage.count.buffer != nullptr && stage.count.count() != kMostUpdates) ++stage.count.count();
}

void OptaxOptimizer::take_back() {
  for (Stage& stage : stages_)
    if (stage.count.buffer != nullptr) --stage.count.count();
}

void OptaxOptimizer::run_stages(const UpdateArgs& args, std::span<const ParamSlot> params) {
  const std::vector<float*> gradients = gradients_of(params);
  for (Stage& stage : stages_) run_stage(stage, args, params, gradients);
  for_each_block(blocks_.size(), [&](size_t b) {
    const auto [array, begin, end] = blocks_[b];
    const auto a = static_cast<size_t>(array);
    float* param = params[a].param.data<float>();
    const float* change = gradients[a];
    float bad = 0;  // NaN once a number is not finite
    for (int64_t i = begin; i < end; ++i) bad += 0 * (param[i] += change[i]);
    for (const Stage& stage : stages_)
      for (const auto* states : {&stage.mu, &stage.nu})
        if (!states->empty())
          for (int64_t i = begin; i < end; ++i) bad += 0 * (*states)[a].floats()[i];
    params[a].watch(bad == 0);
  });
}

FusedStep OptaxOptimizer::fused_step(const UpdateArgs& args,
                                     std::span<const ParamSlot> params) const {
  FusedStep step;
  if (fused_->global_norm != nullptr && Device::current().is_cpu())
    step.use.scale =
        clip_scale(*fused_->global_norm,
                   args.gradient_norm ? *args.gradient_norm
                                      : check_gradients(params, {.reducer = args.reducer}).norm);
  if (fused_->clip != nullptr) step.use.limit = f32(fused_->clip->max_delta);
  const float rate = learning_rate_of(*fused_->rate);
  const Stage* core = fused_->core;
  const Trace* momentum = core != nullptr ? core->as<Trace>() : nullptr;
  if (core != nullptr && core->as<ScaleByAdam>() != nullptr)
    step.numbers = adam_step(*core, rate, fused_->decay);
  else if (core != nullptr && core->as<ScaleByLion>() != nullptr)
    step.numbers = lion_step(*core, rate, fused_->decay);
  else
    step.numbers = cpu::SgdStep{momentum != nullptr ? f32(momentum->decay) : 0.0f, rate,
                                momentum != nullptr && momentum->nesterov};
  return step;
}

void OptaxOptimizer::run_fused(const UpdateArgs& args, std::span<const ParamSlot> params) {
  const FusedStep step = fused_step(args, params);
  Device& device = Device::current();
  if (device.is_cpu()) return run_fused_on_cpu(step, params);
  const Stage* core = fused_->core;
  std::vector<UpdateArrays> arrays;
  for (size_t i = 0; i < params.size(); ++i) {
    const ParamSlot& slot = params[i];
    arrays.push_back(
        {.gradient = slot.grad.absent() ? nullptr : slot.grad.data<float>(),
         .param = slot.param.data<float>(),
         .first = core != nullptr ? core->mu[i].floats() : nullptr,
         .second = core != nullptr && !core->nu.empty() ? core->nu[i].floats() : nullptr,
         .copy = slot.copy.absent() ? nullptr : slot.copy.pointer,
         .n = elements_[i],
         .not_finite = slot.not_finite});
  }
  const GpuKernels& kernels = device.kernels();
  const UpdateControl* control = clip_.decide(
      args, params, fused_->global_norm != nullptr ? fused_->global_norm->max_norm : 0);
  if (const auto* adam = std::get_if<cpu::AdamStep>(&step.numbers))
    kernels.update_adam(arrays, *adam, step.use, control, device.stream());
  else if (const auto* lion = std::get_if<cpu::LionStep>(&step.numbers))
    kernels.update_lion(arrays, *lion, step.use, control, device.stream());
  else
    kernels.update_sgd(arrays, std::get<cpu::SgdStep>(step.numbers), step.use, control,
                       device.stream());
}

/// What a stage does to gradients on a GPU, with the clip or scale it is.
std::pair<UpdateStage, cpu::GradientUse> on_gpu(const Stage& stage) {
  if (const auto* clip = stage.as<Clip>()) return {UseStage{}, {.limit = f32(clip->max_delta)}};
  if (const auto* scale = stage.as<Scale>()) return {UseStage{}, {.scale = f32(scale->step_size)}};
  if (stage.as<ScaleByLearningRate>() != nullptr)
    return {UseStage{}, {.scale = -learning_rate_of(stage)}};
  if (const auto* decay = stage.as<AddDecayedWeights>())
    return {DecayStage{f32(decay->weight_decay)}, {}};
  if (const auto* trace = stage.as<Trace>())
    return {TraceStage{f32(trace->decay), trace->nesterov}, {}};
  if (stage.as<ScaleByLion>() != nullptr) return {LionStage{lion_step(stage, 0, 0)}, {}};
  if (stage.as<ScaleByAdam>() != nullptr) return {AdamStage{adam_step(stage, 0, 0)}, {}};
  return {UseStage{}, {}};
}

/// A pass over gradients for each stage, and one that adds them to parameters.
void OptaxOptimizer::run_stages_on_gpu(const UpdateArgs& args, std::span<const ParamSlot> params) {
  Device& device = Device::current();
  const std::vector<float*> gradients = gradients_of(params);
  const auto run = [&](const UpdateStage& what, const cpu::GradientUse& use,
                       const UpdateControl* control, const Stage* stage) {
    std::vector<UpdateArrays> arrays;
    for (size_t i = 0; i < params.size(); ++i)
      arrays.push_back(
          {.gradient = gradients[i],
           .param = params[i].param.data<float>(),
           .first = stage != nullptr && !stage->mu.empty() ? stage->mu[i].floats() : nullptr,
           .second = stage != nullptr && !stage->nu.empty() ? stage->nu[i].floats() : nullptr,
           .copy = params[i].copy.absent() ? nullptr : params[i].copy.pointer,
           .n = elements_[i],
           .not_finite = params[i].not_finite});
    device.kernels().update_stage(arrays, what, use, control, device.stream());
  };
  UpdateArgs given = args;  // until a stage changes the gradients
  std::vector<ParamSlot> slots(params.begin(), params.end());
  for (size_t i = 0; i < slots.size(); ++i) {
    slots[i].grad = params[i].param;
    slots[i].grad.pointer = gradients[i];
  }
  for (Stage& stage : stages_) {
    if (stage.as<Identity>() != nullptr) continue;
    const auto* norm = stage.as<ClipByGlobalNorm>();
    const auto [what, use] = on_gpu(stage);
    run(what, use, norm != nullptr ? clip_.decide(given, slots, norm->max_norm) : args.control,
        &stage);
    given.gradient_norm.reset();
    given.squares = nullptr;
  }
  run(ApplyStage{}, {}, args.control, nullptr);
}

void OptaxOptimizer::run_fused_on_cpu(const FusedStep& step, std::span<const ParamSlot> params) {
  const std::vector<float*> gradients = gradients_of(params);
  const Stage* core = fused_->core;
  for_each_block(blocks_.size(), [&](size_t b) {
    const auto [array, begin, end] = blocks_[b];
    const auto i = static_cast<size_t>(array);
    const int64_t n = end - begin;
    const float* gradient = gradients[i] + begin;
    float* param = params[i].param.data<float>() + begin;
    float* mu = core != nullptr ? core->mu[i].floats() + begin : nullptr;
    if (const auto* adam = std::get_if<cpu::AdamStep>(&step.numbers))
      params[i].watch(
          cpu::adam_update(n, *adam, step.use, gradient, param, mu, core->nu[i].floats() + begin));
    else if (const auto* lion = std::get_if<cpu::LionStep>(&step.numbers))
      params[i].watch(cpu::lion_update(n, *lion, step.use, gradient, param, mu));
    else
      params[i].watch(
          cpu::sgd_update(n, std::get<cpu::SgdStep>(step.numbers), step.use, gradient, param, mu));
  });
}

/// Norms that clips take: of all gradients as given, which may be known, or of what a chain made of
/// them.
void OptaxOptimizer::simulate_sums(const UpdateArgs& args, std::span<const ParamSlot> params) {
  if (fused_)
    return DeviceClip::simulate(args, params,
                                fused_->global_norm != nullptr ? fused_->global_norm->max_norm : 0);
  for (const Stage& stage : stages_) {
    if (stage.as<ClipByGlobalNorm>() == nullptr) continue;
    std::vector<double> squares(params.size());
    sum_over_ranks(squares, params, args.reducer);
  }
}

/// One elementary transformation over all gradients, in place: for chains that no kernel fuses.
void OptaxOptimizer::run_stage(Stage& stage, const UpdateArgs& args,
                               std::span<const ParamSlot> params,
                               std::span<float* const> gradients) {
  const auto each = [&](const auto& body) {
    for_each_block(blocks_.size(), [&](size_t b) {
      const auto [array, begin, end] = blocks_[b];
      const auto i = static_cast<size_t>(array);
      for (int64_t k = begin; k < end; ++k) body(i, k, gradients[i][k]);
    });
  };
  const auto multiply = [&](float by) { each([&](size_t, int64_t, float& g) { g *= by; }); };
  if (const auto* o = stage.as<Clip>()) {
    const float limit = f32(o->max_delta);
    each([&](size_t, int64_t, float& g) { g = std::min(std::max(g, -limit), limit); });
  } else if (const auto* norm = stage.as<ClipByGlobalNorm>()) {
    std::vector<double> squares;
    for (size_t i = 0; i < gradients.size(); ++i)
      squares.push_back(sum_of_squares(gradients[i], elements_[i]));
    sum_over_ranks(squares, params, args.reducer);
    const double total = std::accumulate(squares.begin(), squares.end(), 0.0);
    multiply(clip_scale(*norm, std::sqrt(total)));
  } else if (const auto* decay = stage.as<AddDecayedWeights>()) {
    const float rate = f32(decay->weight_decay);
    each([&](size_t i, int64_t k, float& g) { g += rate * params[i].param.data<float>()[k]; });
  } else if (stage.as<ScaleByLearningRate>() != nullptr) {
    multiply(-learning_rate_of(stage));
  } else if (const auto* scale = stage.as<Scale>()) {
    multiply(f32(scale->step_size));
  } else if (const auto* trace = stage.as<Trace>()) {
    const float momentum = f32(trace->decay);
    each([&](size_t i, int64_t k, float& g) {
      float& t = stage.mu[i].floats()[k];
      t = g + momentum * t;
      g = trace->nesterov ? g + momentum * t : t;
    });
  } else if (stage.as<ScaleByLion>() != nullptr) {
    const cpu::LionStep s = lion_step(stage, 0, 0);
    each([&](size_t i, int64_t k, float& g) {
      float& mu = stage.mu[i].floats()[k];
      const float blend = s.one_minus_b1 * g + s.b1 * mu;
      mu = s.one_minus_b2 * g + s.b2 * mu;
      g = blend == 0 ? 0.0f : std::copysign(1.0f, blend);
    });
  } else if (stage.as<ScaleByAdam>() != nullptr) {
    const cpu::AdamStep s = adam_step(stage, 0, 0);
    each([&](size_t i, int64_t k, float& g) {
      float& mu = stage.mu[i].floats()[k];
      float& nu = stage.nu[i].floats()[k];
      mu = s.one_minus_b1 * g + s.b1 * mu;
      nu = s.one_minus_b2 * (g * g) + s.b2 * nu;
      g = (s.mu_use * mu + s.gradient_use * g) / (std::sqrt(s.nu_use * nu + s.eps_root) + s.eps);
    });
  }
}

}  // namespace

OptimizerPtr optax_optimizer(TransformationPtr transformation) {
  return std::make_shared<OptaxOptimizer>(std::move(transformation));
}

}  // namespace quintet
