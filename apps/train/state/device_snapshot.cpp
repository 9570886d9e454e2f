#include "apps/train/state/device_snapshot.h"

#include <cstring>

#include "checkpoint/finite.h"
#include "checkpoint/snapshot.h"
#include "kernels/cpu/parallel.h"

namespace quintet {
namespace {

/// float32 to bfloat16, where it lies.
void round_in_place(TensorSlice& slice, std::byte* data) {
  const int64_t elements = bytes_of(slice) / size_of(DType::f32);
  for (int64_t i = 0; i < elements; ++i) {
    float value = 0;
    std::memcpy(&value, data + i * size_of(DType::f32), sizeof value);
    const bfloat16 rounded(value);
    std::memcpy(data + i * size_of(DType::bf16), &rounded, sizeof rounded);
  }
  slice.dtype = DType::bf16;
}

}  // namespace

void DeviceSnapshot::take(const StateSlices& state, const std::string& dtype, Device& device) {
  device_ = &device;
  dtype_ = dtype;
  slices_ = state.slices;
  int64_t total = 0;
  for (const TensorSlice& slice : slices_) total += padded_bytes_of(slice);
  if (total > capacity_) {
    memory_ = {};  // the old one first: never two copies
    capacity_ = 0;
    memory_ = device.pinned(total);
    capacity_ = total;
  }
  std::byte* at = memory_.get();
  for (size_t i = 0; i < slices_.size(); ++i) {
    TensorSlice& slice = slices_[i];
    if (state.devices[i]->is_cpu())
      cpu::parallel_for(bytes_of(slice), 1 << 20, [&](int64_t begin, int64_t end) {
        std::memcpy(at + begin, slice.data + begin, static_cast<size_t>(end - begin));
      });
    else
      device.copy_aside(at, slice.data, bytes_of(slice));
    slice.data = at;
    at += padded_bytes_of(slice);
  }
}

std::vector<TensorSlice> DeviceSnapshot::finish() {
  device_->finish_side_copies();
  std::byte* at = memory_.get();
  for (TensorSlice& slice : slices_) {
    const int64_t padded = padded_bytes_of(slice);
    if (slice.dtype == DType::f32 && is_saved_rounded(slice.name, dtype_))
      round_in_place(slice, at);
    at += padded;
  }
  const std::string bad = describe(count_not_finite(slices_));
  QT_CHECK_AS(ExitCode::kNonFinite, bad.empty(), "nothing is saved: {}", bad);
  return std::move(slices_);
}

}  // namespace quintet
