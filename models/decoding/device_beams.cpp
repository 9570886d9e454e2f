#include "models/decoding/device_beams.h"

#include <algorithm>
#include <cstring>

#include "kernels/gpu_kernels.h"

namespace quintet::decoding {
namespace {

Tensor row_of(int64_t n, DType dtype = DType::i32) { return Tensor(Spec{{{"n", n}}, dtype}); }

template <typename T>
void set(const Tensor& to, std::span<const T> values) {
  HostArray array(to.spec().dtype, {to.size(0)});
  QT_ASSERT(array.bytes.size() == values.size_bytes());
  std::memcpy(array.bytes.data(), values.data(), values.size_bytes());
  to.set(array);
}
template <typename T>
std::vector<T> values_of(const Tensor& from) {
  const HostArray array = from.to_host();
  std::vector<T> values(array.bytes.size() / sizeof(T));
  std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  return values;
}

int32_t* ints(const Tensor& tensor) { return tensor.local().data<int32_t>(); }
float* floats(const Tensor& tensor) { return tensor.local().data<float>(); }

constexpr auto kFinishedInts = static_cast<int64_t>(sizeof(FinishedBeam) / sizeof(int32_t));

}  // namespace

DeviceBeams::DeviceBeams(const BeamPlan& plan)
    : items_(plan.items),
      beams_(plan.beams),
      width_(plan.width),
      lengths_(std::ssize(plan.penalties)),
      eos_id_(plan.eos_id),
      penalty_at_end_(plan.penalty_at_end),
      forced_(row_of(items_ * width_)),
      prompt_lengths_(row_of(items_)),
      penalties_(row_of(lengths_, DType::f32)),
      states_(row_of(items_)),
      steps_(row_of(items_)),
      live_(row_of(items_ * beams_, DType::f32)),
      finished_(row_of(items_ * beams_ * kFinishedInts)),
      tokens_(row_of((width_ - 1) * items_ * beams_)),
      parents_(row_of((width_ - 1) * items_ * beams_)) {}

bool DeviceBeams::fits(const BeamPlan& plan) const {
  return items_ == plan.items && beams_ == plan.beams && width_ == plan.width &&
         lengths_ == std::ssize(plan.penalties) && eos_id_ == plan.eos_id &&
         penalty_at_end_ == plan.penalty_at_end;
}

void DeviceBeams::start(const BeamPlan& plan) {
  set(forced_, plan.forced);
  set(prompt_lengths_, plan.prompt_lengths);
  set(penalties_, plan.penalties);
  for (const Tensor& counts : {states_, steps_})
    Device::current().fill(counts.local().pointer, 0, counts.bytes());
  const auto rows = static_cast<size_t>(items_ * beams_);
  std::vector<float> live(rows, kNegInf);
  for (size_t row = 0; row < rows; row += static_cast<size_t>(beams_)) live[row] = 0;
  set<float>(live_, live);
  const std::vector<FinishedBeam> none(rows, FinishedBeam{.score = kNegInf});
  set<FinishedBeam>(finished_, none);
}

void DeviceBeams::queue(BeamStep step) const {
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

bool DeviceBeams::all_settled() const {
  const std::vector<int32_t> states = values_of<int32_t>(states_);
  QT_CHECK_AS(ExitCode::kData, std::count(states.begin(), states.end(), BeamStep::kFailed) == 0,
              "beam_search: fewer than {} continuations of an item have numbers for logits; are there "
              "NaNs among the parameters?",
              2 * beams_);
  return std::count(states.begin(), states.end(), BeamStep::kSettled) == items_;
}

BeamTrace DeviceBeams::trace() const {
  return {.steps = values_of<int32_t>(steps_),
          .live = values_of<float>(live_),
          .finished = values_of<FinishedBeam>(finished_),
          .tokens = values_of<int32_t>(tokens_),
          .parents = values_of<int32_t>(parents_)};
}

}  // namespace quintet::decoding
