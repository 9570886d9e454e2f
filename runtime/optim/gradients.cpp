#include "runtime/optim/gradients.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "kernels/gpu/gpu_kernels.h"
#include "kernels/optimizers/elementwise.h"
#include "runtime/optim/blocks.h"

namespace quintet {
namespace {

/// The sum of a block that may have overflowed float32 although every number is finite, in double.
double exact_sum_of_squares(FloatPointer values, int64_t n) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<double>((values + i).get());
    total += value * value;
  }
  return total;
}

double block_sum(FloatPointer values, int64_t n) {
  const double sum = cpu::sum_of_squares_block(n, values);
  return std::isfinite(sum) ? sum : exact_sum_of_squares(values, n);
}

/// Sum of squares of each gradient, by the CPU.
std::vector<double> squares_on_cpu(std::span<const ParamSlot> params) {
  std::vector<int64_t> sizes;
  for (const ParamSlot& slot : params)
    sizes.push_back(slot.grad.absent() ? 0 : slot.grad.elements());
  const auto blocks = cut_into_blocks(sizes);
  std::vector<double> sums(blocks.size());
  for_each_block(blocks.size(), [&](size_t i) {
    const auto [array, begin, end] = blocks[i];
    sums[i] = block_sum(FloatPointer(params[static_cast<size_t>(array)].grad) + begin, end - begin);
  });
  std::vector<double> squares(params.size());
  for (size_t i = 0; i < blocks.size(); ++i)
    squares[static_cast<size_t>(blocks[i].array)] += sums[i];
  return squares;
}

/// The squares of all gradients together, in one collective: each block is counted by one of the ranks
/// that hold it.
class TotalOverRanks {
 public:
  TotalOverRanks(std::span<const ParamSlot> params, Reducer* reducer) : reducer_(reducer) {
    for (const ParamSlot& slot : params) {
      axes_.push_back(slot.shard_axes());
      for (const std::string& axis : axes_.back())
        if (std::find(ranks_.begin(), ranks_.end(), axis) == ranks_.end()) ranks_.push_back(axis);
    }
    std::sort(ranks_.begin(), ranks_.end());  // the same group whatever the first parameter is
    QT_ASSERT(ranks_.empty() || reducer != nullptr);
  }
  /// Whether this rank counts the block of parameter number `param`.
  bool counts(size_t param) const {
    return ranks_.empty() || reducer_->counts(axes_[param], ranks_);
  }
  void sum(double& total) const {
    if (!ranks_.empty()) reducer_->sum({&total, 1}, ranks_);
  }
  void sum_on_device(double& total) const {
    if (!ranks_.empty()) reducer_->sum_on_device({&total, 1}, ranks_);
  }

 private:
  Reducer* reducer_;
  std::vector<MeshAxes> axes_;
  MeshAxes ranks_;  // along which something is sharded
};

/// The squares of gradients in a device's memory; those side by side that are sharded over the same axes.
class DeviceSquares {
 public:
  /// Of the gradients that `counts` names; the others are taken for zero.
  DeviceSquares(Device& device, std::span<const ParamSlot> params,
                const std::function<bool(size_t)>& counts)
      : device_(device), order_(params.size()) {
    std::vector<MeshAxes> axes;
    for (const ParamSlot& slot : params) axes.push_back(slot.shard_axes());
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&](size_t a, size_t b) { return axes[a] < axes[b]; });
    std::vector<View> gradients;
    for (const size_t i : order_) {
      gradients.push_back(counts(i) ? params[i].grad : View::none());
      axes_.push_back(std::move(axes[i]));
    }
    const int64_t n = std::ssize(order_);
    memory_ = device.memory().allocate(
        (n + 1) * static_cast<int64_t>(sizeof(ArrayStatistics) + sizeof(double)));
    auto* statistics = reinterpret_cast<ArrayStatistics*>(memory_.get());
    squares_ = reinterpret_cast<double*>(statistics + n + 1);
    device.kernels().measure_arrays(gradients, statistics, squares_, device.stream());
  }
  const double* squares() const { return squares_; }

  /// Of each gradient over all ranks, in the order of the slots; a collective for each set of axes.
  std::vector<double> of_each(Reducer* reducer) {
    for (size_t begin = 0, end = 0; begin < order_.size(); begin = end) {
      while (end < order_.size() && axes_[end] == axes_[begin]) ++end;
      if (axes_[begin].empty()) continue;
      QT_ASSERT(reducer != nullptr);
      reducer->sum_on_device({squares_ + begin, end - begin}, axes_[begin]);
    }
    std::vector<double> sorted(order_.size()), squares(order_.size());
    device_.copy_out(sorted.data(), squares_, static_cast<int64_t>(sorted.size() * sizeof(double)));
    for (size_t i = 0; i < order_.size(); ++i) squares[order_[i]] = sorted[i];
    return squares;
  }

 private:
  Device& device_;
  std::vector<size_t> order_;   // slots as they are measured
  std::vector<MeshAxes> axes_;  // of each of those
  Buffer memory_;
  double* squares_ = nullptr;
};

/// Squares of finite floats cannot overflow a double: only a bad number makes the sum bad.
std::string first_not_finite(std::span<const ParamSlot> params,
                             const std::vector<double>& squares) {
  const auto bad = std::find_if(squares.begin(), squares.end(),
                                [](double square) { return !std::isfinite(square); });
  return bad == squares.end() ? "" : params[static_cast<size_t>(bad - squares.begin())].name;
}

std::string first_marked(std::span<const ParamSlot> params, std::span<const int32_t> marks) {
  const auto marked =
      std::find_if(marks.begin(), marks.end(), [](int32_t mark) { return mark != 0; });
  return marked == marks.end() ? "" : params[static_cast<size_t>(marked - marks.begin())].name;
}

GradientCheck check_on_cpu(std::span<const ParamSlot> params, const GradientCheckOptions& options) {
  GradientCheck check;
  check.squares = squares_on_cpu(params);
  const TotalOverRanks ranks(params, options.reducer);
  double total = 0;
  for (size_t i = 0; i < params.size(); ++i)
    if (ranks.counts(i)) total += check.squares[i];
  ranks.sum(total);
  check.norm = std::sqrt(total);
  check.all_finite = std::isfinite(total);
  if (options.each || !check.all_finite) {
    Bucket bucket;
    for (size_t i = 0; i < params.size(); ++i)
      bucket.add({&check.squares[i], 1}, params[i].shard_axes());
    bucket.sum(options.reducer);
  }
  if (!check.all_finite) check.first_bad = first_not_finite(params, check.squares);
  if (options.marks != nullptr)
    check.first_marked = first_marked(params, {options.marks, params.size()});
  return check;
}

}  // namespace

GradientCheck check_gradients(std::span<const ParamSlot> params,
                              const GradientCheckOptions& options) {
  if (Device::current().is_cpu()) return check_on_cpu(params, options);
  const QueuedCheck queued(params, options);
  return queued.check(queued.summary().to_host());
}

struct QueuedCheck::Impl {
  Device& device;
  std::vector<ParamSlot> params;
  GradientCheckOptions options;
  Tensor summary = Tensor({{{"bytes", sizeof(GradientSummary)}}, DType::u8});
  Buffer control = device.memory().allocate(sizeof(UpdateControl));

  GradientSummary* on_device() const { return reinterpret_cast<GradientSummary*>(summary.raw()); }
  UpdateControl* decision() const { return reinterpret_cast<UpdateControl*>(control.get()); }
};

QueuedCheck::QueuedCheck(std::span<const ParamSlot> params, const GradientCheckOptions& options)
    : impl_(std::make_unique<Impl>(
          Impl{Device::current(), {params.begin(), params.end()}, options})) {
  Device& device = impl_->device;
  const TotalOverRanks ranks(params, options.reducer);
  const DeviceSquares of_rank(device, params, [&](size_t i) { return ranks.counts(i); });
  device.kernels().summarize_gradients(of_rank.squares(), options.marks, std::ssize(params),
                                       impl_->on_device(), device.stream());
  ranks.sum_on_device(impl_->on_device()->squares);
  device.kernels().decide_update(squares(), 0, nullptr, impl_->decision(), device.stream());
}
QueuedCheck::~QueuedCheck() = default;
QueuedCheck::QueuedCheck(QueuedCheck&&) noexcept = default;
QueuedCheck& QueuedCheck::operator=(QueuedCheck&&) noexcept = default;

const double* QueuedCheck::squares() const { return &impl_->on_device()->squares; }
const UpdateControl* QueuedCheck::control() const { return impl_->decision(); }
const Tensor& QueuedCheck::summary() const { return impl_->summary; }

GradientCheck QueuedCheck::check(const HostArray& of_device) const {
  const auto& [device, params, options, on_device, control] = *impl_;
  GradientSummary summary;
  QT_ASSERT(of_device.bytes.size() == sizeof summary);
  std::memcpy(&summary, of_device.bytes.data(), sizeof summary);
  GradientCheck check;
  check.norm = std::sqrt(summary.squares);
  check.all_finite = std::isfinite(summary.squares);
  if (options.each || !check.all_finite)
    check.squares =
        DeviceSquares(device, params, [](size_t) { return true; }).of_each(options.reducer);
  if (!check.all_finite) check.first_bad = first_not_finite(params, check.squares);
  if (summary.any_marked != 0) {
    std::vector<int32_t> marks(params.size());
    device.copy_out(marks.data(), options.marks,
                    static_cast<int64_t>(marks.size() * sizeof(int32_t)));
    check.first_marked = first_marked(params, marks);
  }
  return check;
}

double sum_of_squares(FloatPointer values, int64_t n) {
  const auto blocks = cut_into_blocks({n});
  std::vector<double> sums(blocks.size());
  for_each_block(blocks.size(), [&](size_t i) {
    sums[i] = block_sum(values + blocks[i].begin, blocks[i].end - blocks[i].begin);
  });
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

}  // namespace quintet
