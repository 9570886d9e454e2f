#include "runtime/optim/host_mirror.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/convert.h"
#include "kernels/gpu/gpu_kernels.h"

namespace quintet {
namespace {

constexpr size_t kPlaces = 3;  // of a group that comes, one that is updated, one that goes
constexpr int64_t kGroups = 8, kGroupBytes = 64 << 20, kAlign = 256;

int64_t aligned_bytes(const View& array, DType dtype) {
  return (array.elements() * size_of(dtype) + kAlign - 1) / kAlign * kAlign;
}

bool is_on_host(const ParamSlot& slot, const HostMirrorOptions& options) {
  return options.masters_on_host && !slot.copy.absent();
}

int64_t staged_bytes(const ParamSlot& slot, const HostMirrorOptions& options) {
  return aligned_bytes(slot.param, options.gradient_dtype) +
         (is_on_host(slot, options) ? 0 : aligned_bytes(slot.param, DType::f32));
}

std::array<int64_t, kPlaces> place_bytes(std::span<const MirrorGroup> groups) {
  std::array<int64_t, kPlaces> bytes{};
  for (size_t g = 0; g < groups.size(); ++g)
    bytes[g % kPlaces] = std::max(bytes[g % kPlaces], groups[g].bytes);
  return bytes;
}

class HostMirror final : public Optimizer {
 public:
  HostMirror(OptimizerPtr optimizer, const HostMirrorOptions& options)
      : optimizer_(std::move(optimizer)), options_(options) {}

  void init(std::span<const ParamSlot> params) override {
    Device& device = Device::current();
    down_.reset(), up_.reset();  // before what they copy
    {
      std::vector<ParamSlot> slots(params.begin(), params.end());
      for (ParamSlot& slot : slots)
        if (!is_on_host(slot, options_)) slot.param.pointer = nullptr;
      const Device::Use on_cpu(Device::cpu());
      optimizer_->init(slots);
    }
    groups_ = mirror_groups(params, options_, optimizer_->updates_apart());
    const auto bytes = place_bytes(groups_);
    for (size_t p = 0; p < kPlaces; ++p) places_[p] = device.pinned(std::max<int64_t>(bytes[p], 1));
    place(params);
    down_ = device.copy_stream(kPlaces);
    up_ = device.copy_stream(kPlaces);
  }

  void update(const UpdateArgs& args, std::span<const ParamSlot> params) override {
    QT_ASSERT(params.size() == gradients_.size());
    std::vector<int32_t> marks(params.size());
    std::vector<ParamSlot> slots(params.begin(), params.end());
    for (size_t i = 0; i < slots.size(); ++i) {
      if (!slots[i].grad.absent()) slots[i].grad = gradients_[i];
      if (!is_on_host(params[i], options_)) slots[i].param = params_[i];
      slots[i].copy = View::none();
      slots[i].not_finite = &marks[i];
    }
    try {
      update_groups(args, params, slots);
    } catch (...) {
      for (CopyStream* stream : {down_.get(), up_.get()}) {
        try {
          stream->order();
        } catch (const std::exception&) {  // the first error is the one to tell
        }
      }
      throw;
    }
    down_->order(), up_->order();
    cast_copies(params);
    Device& device = Device::current();
    for (size_t i = 0; i < params.size(); ++i)
      if (marks[i] != 0 && params[i].not_finite != nullptr)
        device.copy_in(params[i].not_finite, &marks[i], sizeof marks[i]);
  }

  void simulate_sums(const UpdateArgs& args, std::span<const ParamSlot> params) override {
    optimizer_->simulate_sums(args, params);
  }
  std::vector<StateArray> state() override { return optimizer_->state(); }
  void take_back() override { optimizer_->take_back(); }
  bool takes_not_finite() const override { return optimizer_->takes_not_finite(); }
  std::optional<double> example_clip() const override { return optimizer_->example_clip(); }

 private:
  /// Where the CPU sees gradients and parameters: side by side in their group's place.
  void place(std::span<const ParamSlot> params) {
    gradients_.clear(), params_.clear();
    for (size_t g = 0; g < groups_.size(); ++g) {
      std::byte* at = places_[g % kPlaces].get();
      const auto take = [&at](View view, DType dtype) {
        view.pointer = at;
        view.dtype = dtype;
        at += aligned_bytes(view, dtype);
        return view;
      };
      for (const ParamSlot& slot : params.subspan(groups_[g].begin, groups_[g].size())) {
        gradients_.push_back(take(slot.param, options_.gradient_dtype));
        params_.push_back(is_on_host(slot, options_) ? View::none() : take(slot.param, DType::f32));
      }
    }
  }

  void update_groups(const UpdateArgs& args, std::span<const ParamSlot> params,
                     std::span<const ParamSlot> slots) {
    bring(0, params, slots);
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (g + 1 < groups_.size()) bring(g + 1, params, slots);
      down_->wait(g % kPlaces);
      {
        const Device::Use on_cpu(Device::cpu());
        optimizer_->update_part(args, slots, groups_[g].begin, groups_[g].end);
      }
      send(g, params);
    }
  }

  void bring(size_t group, std::span<const ParamSlot> params, std::span<const ParamSlot> slots) {
    up_->wait(group % kPlaces);  // what its place held has left
    for (size_t i = groups_[group].begin; i < groups_[group].end; ++i) {
      if (!params[i].grad.absent()) copy(*down_, params[i].grad, slots[i].grad);
      if (!is_on_host(params[i], options_)) copy(*down_, params[i].param, slots[i].param);
    }
    down_->record(group % kPlaces);
  }

  /// A copy takes its gradient's place, which has been used.
  void send(size_t group, std::span<const ParamSlot> params) {
    for (size_t i = groups_[group].begin; i < groups_[group].end; ++i) {
      if (!is_on_host(params[i], options_)) {
        copy(*up_, params_[i], params[i].param);
        continue;
      }
      View rounded = gradients_[i];
      rounded.dtype = DType::bf16;
      const View& master = params[i].param;
      cpu::convert(master.data<float>(), master.elements(), rounded.data<bfloat16>());
      copy(*up_, rounded, params[i].copy);
    }
    up_->record(group % kPlaces);
  }

  void cast_copies(std::span<const ParamSlot> params) const {
    std::vector<View> updated, rounded;
    for (const ParamSlot& slot : params) {
      if (is_on_host(slot, options_) || slot.copy.absent()) continue;
      updated.push_back(slot.param);
      rounded.push_back(slot.copy);
    }
    Device& device = Device::current();
    if (!updated.empty()) device.kernels().cast(updated, rounded, device.stream());
  }

  static void copy(CopyStream& stream, const View& from, const View& to) {
    QT_ASSERT(from.dtype == to.dtype);
    stream.copy(to.pointer, from.pointer, from.elements() * size_of(from.dtype));
  }

  OptimizerPtr optimizer_;
  HostMirrorOptions options_;
  std::vector<MirrorGroup> groups_;
  std::array<Buffer, kPlaces> places_;
  std::vector<View> gradients_, params_;  // in them; of masters in the host's memory none
  std::unique_ptr<CopyStream> down_,
      up_;  // their events: a place's gradients came, a place is free
};

}  // namespace

std::vector<MirrorGroup> mirror_groups(std::span<const ParamSlot> params,
                                       const HostMirrorOptions& options, bool updates_apart) {
  int64_t all = 0;
  for (const ParamSlot& slot : params) all += staged_bytes(slot, options);
  const int64_t most = updates_apart ? std::min(all / kGroups, kGroupBytes) : all;
  std::vector<MirrorGroup> groups(1);
  for (size_t i = 0; i < params.size(); ++i) {
    const int64_t bytes = staged_bytes(params[i], options);
    if (groups.back().end > groups.back().begin && groups.back().bytes + bytes > most)
      groups.push_back({.begin = i, .end = i});
    groups.back().end = i + 1;
    groups.back().bytes += bytes;
  }
  return groups;
}

int64_t pinned_bytes(std::span<const MirrorGroup> groups) {
  int64_t all = 0;
  for (const int64_t bytes : place_bytes(groups)) all += bytes;
  return all;
}

OptimizerPtr host_mirror(OptimizerPtr optimizer, const HostMirrorOptions& options) {
  return std::make_shared<HostMirror>(std::move(optimizer), options);
}

}  // namespace quintet
