#include "models/decoding/gpu/gpu_beams.h"

#include <algorithm>

#include "kernels/gpu/gpu_kernels.h"
#include "models/decoding/gpu/device_arrays.h"

namespace quintet::decoding {
namespace {

constexpr auto kFinishedInts = static_cast<int64_t>(sizeof(FinishedBeam) / sizeof(int32_t));

}  // namespace

GpuBeams::GpuBeams(const BeamPlan& plan)
    : items_(plan.items),
      beams_(plan.beams),
      width_(plan.width),
      lengths_(std::ssize(plan.penalties)),
      eos_id_(plan.eos_id),
      penalty_at_end_(plan.penalty_at_end),
      forced_(device_array(items_ * width_)),
      prompt_lengths_(device_array(items_)),
      penalties_(device_array(lengths_, DType::f32)),
      states_(device_array(items_)),
      steps_(device_array(items_)),
      live_(device_array(items_ * beams_, DType::f32)),
      finished_(device_array(items_ * beams_ * kFinishedInts)),
      tokens_(device_array((width_ - 1) * items_ * beams_)),
      parents_(device_array((width_ - 1) * items_ * beams_)) {}

bool GpuBeams::fits(const BeamPlan& plan) const {
  return items_ == plan.items && beams_ == plan.beams && width_ == plan.width &&
         lengths_ == std::ssize(plan.penalties) && eos_id_ == plan.eos_id &&
         penalty_at_end_ == plan.penalty_at_end;
}

void GpuBeams::start(const BeamPlan& plan) {
  set_values(forced_, plan.forced);
  set_values(prompt_lengths_, plan.prompt_lengths);
  set_values(penalties_, plan.penalties);
  for (const Tensor& counts : {states_, steps_})
    Device::current().fill(counts.local().pointer, 0, counts.bytes());
  const auto rows = static_cast<size_t>(items_ * beams_);
  std::vector<float> live(rows, kNegInf);
  for (size_t row = 0; row < rows; row += static_cast<size_t>(beams_)) live[row] = 0;
  set_values<float>(live_, live);
  const std::vector<FinishedBeam> none(rows, FinishedBeam{.score = kNegInf});
  set_values<FinishedBeam>(finished_, none);
}

void GpuBeams::queue(BeamStep step) const {
  step.items = items_;
  step.beams = beams_;
  step.eos_id = eos_id_;
  step.width = width_;
  step.forced = ints(forced_);
  step.prompt_lengths = ints(prompt_lengths_);
  step.penalties = floats(penalties_);
  step.penalty_at_end = penalty_at_end_;
  step.states = ints(states_);
  step.steps = ints(steps_);
  step.live = floats(live_);
  step.finished = static_cast<FinishedBeam*>(finished_.local().pointer);
  step.written_tokens = ints(tokens_);
  step.written_parents = ints(parents_);
  Device::current().kernels().beam(step, Device::current().stream());
}

bool GpuBeams::all_settled() const {
  const std::vector<int32_t> states = values_of<int32_t>(states_);
  QT_CHECK_AS(
      ExitCode::kData, std::count(states.begin(), states.end(), BeamStep::kFailed) == 0,
      "beam_search: fewer than {} continuations of an item have numbers for logits; are there "
      "NaNs among the parameters?",
      2 * beams_);
  return std::count(states.begin(), states.end(), BeamStep::kSettled) == items_;
}

BeamTrace GpuBeams::trace() const {
  return {.steps = values_of<int32_t>(steps_),
          .live = values_of<float>(live_),
          .finished = values_of<FinishedBeam>(finished_),
          .tokens = values_of<int32_t>(tokens_),
          .parents = values_of<int32_t>(parents_)};
}

}  // namespace quintet::decoding
