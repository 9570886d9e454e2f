#include "models/decoding/gpu/gpu_samples.h"

#include "kernels/gpu/gpu_kernels.h"
#include "models/decoding/gpu/device_arrays.h"

namespace quintet::decoding {
namespace {

Key* keys_of(const Tensor& tensor) { return static_cast<Key*>(tensor.local().pointer); }

}  // namespace

GpuSamples::GpuSamples(const SamplePlan& plan)
    : rows_(plan.rows),
      decodes_(plan.decodes),
      width_(plan.width),
      temperature_count_(std::ssize(plan.temperatures)),
      eos_id_(plan.eos_id),
      topk_(plan.topk),
      topp_(plan.topp),
      rescale_log_probs_(plan.rescale_log_probs),
      temperatures_(device_array(temperature_count_, DType::f32)),
      allowances_(device_array(rows_)),
      sequences_(device_array(rows_ * width_)),
      indices_(device_array(rows_)),
      ended_(device_array(rows_)),
      running_(device_array(1)),
      log_probs_(device_array(rows_, DType::f32)),
      keys_(device_array(4)),
      drawn_(device_array(rows_)),
      drawn_log_probs_(device_array(rows_, DType::f32)) {}

bool GpuSamples::fits(const SamplePlan& plan) const {
  return rows_ == plan.rows && decodes_ == plan.decodes && width_ == plan.width &&
         temperature_count_ == std::ssize(plan.temperatures) && eos_id_ == plan.eos_id &&
         topk_ == plan.topk && topp_ == plan.topp && rescale_log_probs_ == plan.rescale_log_probs;
}

void GpuSamples::start(const SamplePlan& plan) {
  set_values(temperatures_, plan.temperatures);
  set_values(allowances_, plan.allowances);
  set_values(sequences_, plan.sequences);
  set_values(indices_, plan.indices);
  const auto running = static_cast<int32_t>(rows_);
  set_values<int32_t>(running_, {&running, 1});
  const Key keys[] = {split_at(plan.rng, 0), split_at(plan.rng, 1)};
  set_values<Key>(keys_, keys);
  for (const Tensor& zeros : {ended_, log_probs_})
    Device::current().fill(zeros.local().pointer, 0, zeros.bytes());
}

void GpuSamples::queue(const float* logits, int64_t vocab, SampleStep next) const {
  const GpuKernels& kernels = Device::current().kernels();
  const Stream stream = Device::current().stream();
  kernels.sample({.logits = logits,
                  .rows = rows_,
                  .vocab = vocab,
                  .stride = vocab,
                  .num_decodes = decodes_,
                  .temperatures = floats(temperatures_),
                  .has_one_temperature = temperature_count_ == 1,
                  .topk = topk_,
                  .topp = topp_,
                  .rescale_log_probs = rescale_log_probs_,
                  .key = keys_of(keys_),
                  .tokens = ints(drawn_),
                  .log_probs = floats(drawn_log_probs_)},
                 stream);
  next.rows = rows_;
  next.width = width_;
  next.eos_id = eos_id_;
  next.drawn = ints(drawn_);
  next.drawn_log_probs = floats(drawn_log_probs_);
  next.allowances = ints(allowances_);
  next.sequences = ints(sequences_);
  next.indices = ints(indices_);
  next.ended = ints(ended_);
  next.running = ints(running_);
  next.log_probs = floats(log_probs_);
  next.keys = keys_of(keys_);
  kernels.advance_samples(next, stream);
}

bool GpuSamples::all_ended() const { return values_of<int32_t>(running_).front() == 0; }

SampleTrace GpuSamples::trace() const {
  return {.sequences = values_of<int32_t>(sequences_), .log_probs = values_of<float>(log_probs_)};
}

}  // namespace quintet::decoding
