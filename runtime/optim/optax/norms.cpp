#include "runtime/optim/optax/norms.h"

#include <algorithm>
#include <numeric>

#include "kernels/gpu/gpu_kernels.h"
#include "runtime/optim/gradients.h"

namespace quintet {
namespace {

/// optax.scale_by_trust_ratio. Sums of squares of each parameter and of its gradient are taken over the ranks that
/// hold its blocks.
class RunningTrustRatio final : public RunningAs<TrustRatioOptions> {
 public:
  using RunningAs::RunningAs;
  void init(std::span<const ParamSlot>) override {}

  void update(Updates& updates) override {
    const std::vector<ParamSlot> slots = updates.slots();
    std::vector<RuleState> states(slots.size());
    if (Device::current().is_cpu())
      measure_on_cpu(updates.args, slots, states);
    else
      measure_on_device(updates.args, slots, states);
    updates.apply(
        {rules::TrustRatio{f32(what().trust_coefficient), f32(what().min_norm), f32(what().eps)}},
        states);
  }

  void simulate_sums(const UpdateArgs& args, std::span<const ParamSlot> params) const override {
    std::vector<double> squares(2 * params.size());
    sum_pairs(squares, params, args.reducer);
  }

 private:
  static void sum_pairs(std::vector<double>& squares, std::span<const ParamSlot> params,
                        Reducer* reducer) {
    Bucket bucket;
    for (size_t i = 0; i < params.size(); ++i)
      bucket.add({&squares[2 * i], 2}, params[i].shard_axes());
    bucket.sum(reducer);
  }

  void measure_on_cpu(const UpdateArgs& args, std::span<const ParamSlot> slots,
                      std::span<RuleState> states) {
    squares_.clear();
    for (const ParamSlot& slot : slots)
      for (const View* view : {&slot.param, &slot.grad})
        squares_.push_back(sum_of_squares(FloatPointer(*view), view->elements()));
    sum_pairs(squares_, slots, args.reducer);
    for (size_t i = 0; i < states.size(); ++i) states[i].squares = &squares_[2 * i];
  }

  /// Those that are sharded over the same axes lie side by side: a collective for each set of axes.
  void measure_on_device(const UpdateArgs& args, std::span<const ParamSlot> slots,
                         std::span<RuleState> states) {
    Device& device = Device::current();
    std::vector<MeshAxes> axes;
    for (const ParamSlot& slot : slots) axes.push_back(slot.shard_axes());
    std::vector<size_t> order(slots.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t i) { return axes[i]; });
    std::vector<View> views;
    for (const size_t i : order) views.insert(views.end(), {slots[i].param, slots[i].grad});
    const int64_t n = std::ssize(views);
    memory_ = device.memory().allocate(
        (n + 1) * static_cast<int64_t>(sizeof(ArrayStatistics) + sizeof(double)));
    auto* statistics = reinterpret_cast<ArrayStatistics*>(memory_.get());
    auto* squares = reinterpret_cast<double*>(statistics + n + 1);
    device.kernels().measure_arrays(views, statistics, squares, device.stream());
    for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
      const MeshAxes& shared = axes[order[begin]];
      while (end < order.size() && axes[order[end]] == shared) ++end;
      if (!shared.empty())
        args.reducer->sum_on_device({squares + 2 * begin, 2 * (end - begin)}, shared);
    }
    for (size_t at = 0; at < order.size(); ++at) states[order[at]].squares = squares + 2 * at;
  }

  std::vector<double> squares_;
  Buffer memory_;
};

}  // namespace

void sum_over_ranks(std::vector<double>& numbers, std::span<const ParamSlot> params,
                    Reducer* reducer) {
  Bucket bucket;
  for (size_t i = 0; i < numbers.size(); ++i) bucket.add({&numbers[i], 1}, params[i].shard_axes());
  bucket.sum(reducer);
}

void RunningClip::update(Updates& updates) {
  const std::vector<ParamSlot> slots = updates.slots();
  if (Device::current().is_cpu()) {
    std::vector<double> squares;
    for (const ParamSlot& slot : slots)
      squares.push_back(sum_of_squares(FloatPointer(slot.grad), slot.grad.elements()));
    sum_over_ranks(squares, updates.params, updates.args.reducer);
    const double total = std::accumulate(squares.begin(), squares.end(), 0.0);
    updates.apply({.use = {.scale = scale(std::sqrt(total))}});
  } else {
    updates.apply({.control = clip_.decide(updates.args, slots, max_norm())});
  }
}

void RunningClip::simulate_sums(const UpdateArgs& args, std::span<const ParamSlot> params) const {
  std::vector<double> squares(params.size());
  sum_over_ranks(squares, params, args.reducer);
}

TransformationPtr clip_by_global_norm(double max_norm) {
  QT_CHECK(max_norm > 0, "clip_by_global_norm: max_norm must be positive, got {}", max_norm);
  return transformation<RunningClip>(max_norm);
}

TransformationPtr scale_by_trust_ratio(const TrustRatioOptions& options) {
  return transformation<RunningTrustRatio>(options);
}

}  // namespace quintet
