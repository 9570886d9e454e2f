#include "runtime/optim/adafactor/adafactor.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/gpu/gpu_kernels.h"
#include "kernels/optimizers/adafactor.h"
#include "runtime/base/check.h"
#include "runtime/optim/adafactor/factoring.h"
#include "runtime/optim/blocks.h"
#include "runtime/optim/device_clip.h"
#include "runtime/optim/gradients.h"
#include "runtime/optim/state_buffer.h"

namespace quintet {
namespace {

float f32(double x) { return static_cast<float>(x); }

/// What the momentum is multiplied by: JAX rounds the number to the momentum's type first.
float beta1_of(const AdafactorOptions& o) {
  const float beta1 = f32(o.beta1.value_or(0));
  return o.dtype_momentum == DType::bf16 ? static_cast<float>(bfloat16(beta1)) : beta1;
}

/// max(a, b) that is NaN if b is, as jnp.maximum.
float nan_max(float a, float b) { return std::isnan(b) || b > a ? b : a; }

/// Numbers of this update that all parameters share.
struct StepNumbers {
  float learning_rate, decay, mixing, gradient_scale, keep;
};

/// One parameter: its layout and state, and the phases of an update. Between two phases stand the
/// sums that, once arrays are sharded, have to be taken over all ranks.
class AdafactorParam {
 public:
  AdafactorParam(const AdafactorOptions& options, const ParamSlot& slot);
  /// The phases in one go. `gradient`: as large as the parameter.
  void update(const AdafactorOptions& options, const StepNumbers& numbers, const ParamSlot& slot,
              FloatPointer gradient);

  // The phases, in order. Where the array is sharded over ranks, what a phase puts into the bucket has
  // to be summed before the next.
  void take_sums(const AdafactorOptions& options, const StepNumbers& numbers, const ParamSlot& slot,
                 FloatPointer gradient);
  void add_sums(Bucket& bucket);
  void take_moments(const AdafactorOptions& options, const StepNumbers& numbers,
                    const ParamSlot& slot);
  void add_means(Bucket& bucket) {
    if (factoring_.factored) bucket.add(numbers(means_, layout_.batches), row_axes_);
  }
  void take_squares(const AdafactorOptions& options);
  void add_squares(Bucket& bucket) {
    bucket.add(numbers(param_sums_, layout_.batches), axes_);
    bucket.add(numbers(update_sums_, layout_.batches), axes_);
  }
  void apply(const AdafactorOptions& options, const StepNumbers& numbers, const ParamSlot& slot);
  bool sharded() const { return !axes_.empty(); }
  /// Places on a GPU for what the three buckets of sums hold of this parameter. All are in the first unless
  /// rows and columns are sharded (AdafactorExchange).
  void place_sums(DeviceBucket& moments, DeviceBucket& means, DeviceBucket& squares);

  void list_state(const ParamSlot& slot, std::vector<StateArray>& arrays) const;
  /// What the device's kernel updates; arrays in its memory.
  AdafactorGpuArray on_gpu(const ParamSlot& slot) const;
  /// As a kernel on a GPU sees it.
  AdafactorShape gpu_shape(const ParamSlot& slot) const;
  /// Tiles whose squares of the parameter an update on a GPU keeps for the next one.
  int64_t cached_tiles(const ParamSlot& slot) const {
    return scaled_by_param_ ? adafactor_tiles(gpu_shape(slot)) : 0;
  }
  void place_cached(float* squares) { cached_squares_ = squares; }

 private:
  cpu::AdafactorLines chunk(size_t i) const {
    const size_t begin = i == 0 ? 0 : layout_.chunk_ends[i - 1];
    return {layout_.lines.data() + begin, layout_.chunk_ends[i] - begin};
  }
  /// What goes into a bucket; in a simulated step it is not there and only counts.
  static std::span<double> numbers(std::vector<double>& values, int64_t count) {
    return {values.data(), static_cast<size_t>(count)};
  }
  std::vector<double> along_sums(int64_t size);
  void make_factors();
  cpu::AdafactorFactors factors() const {
    const bool row = layout_.along_is_row;
    return {(row ? row_factor_ : col_factor_).data(), (row ? col_factor_ : row_factor_).data()};
  }
  size_t row_batch(size_t k) const {
    return layout_.row_batch.empty() ? size_t{0} : static_cast<size_t>(layout_.row_batch[k]);
  }
  float* momentum() const { return static_cast<float*>(m_.view.pointer); }
  std::vector<float> steps(const AdafactorOptions& options, float learning_rate) const;
  std::vector<double> by_batch(const std::vector<float>& line_squares) const;

  Factoring factoring_;
  FactoredLayout layout_;
  bool scaled_by_param_ = true;
  StateBuffer v_row_, v_col_, v_, m_;
  AdafactorSums sums_on_gpu_;
  float* cached_squares_ = nullptr;  // on a GPU, of cached_tiles()
  MeshAxes row_axes_, column_axes_,
      axes_;  // mesh axes that shard ROW axes, COLUMN axes, any but BATCH
  // Scratch of an update.
  cpu::AdafactorArrays arrays_{};
  std::vector<double> row_sums_, column_sums_, means_;  // of squares; of v_row by batch
  std::vector<double> param_sums_, update_sums_;        // of squares, by batch
  std::vector<float> new_row_, new_col_, row_factor_, col_factor_;
  std::vector<float> gradient_squares_, param_squares_, update_squares_;  // by line
};

MomentAxis moment_axis(FactorDim dim) {
  switch (dim) {
    case FactorDim::kBatch:
      return MomentAxis::batch;
    case FactorDim::kRow:
      return MomentAxis::row;
    case FactorDim::kColumn:
      return MomentAxis::column;
    case FactorDim::kNone:
    case FactorDim::kHeuristic:
      break;
  }
  return MomentAxis::none;
}

std::vector<int64_t> shape_of(const View& view) {
  return {view.sizes.begin(), view.sizes.begin() + view.rank};
}

/// Of the global array.
std::vector<int64_t> global_shape_of(const View& view) {
  return {view.global.begin(), view.global.begin() + view.rank};
}

/// A moment that has the axes `dims` of a block lies where the block does.
void keep_place(View& moment, const View& param, const std::vector<size_t>& dims) {
  for (size_t i = 0; i < dims.size(); ++i) {
    moment.origin[i] = param.origin[dims[i]];
    moment.global[i] = param.global[dims[i]];
  }
}

AdafactorParam::AdafactorParam(const AdafactorOptions& options, const ParamSlot& slot)
    : factoring_(factoring_of(options, slot.name, slot.axes, global_shape_of(slot.param),
                              slot.has_more_axes_in_t5x)),
      layout_(layout_of(factoring_, shape_of(slot.param), global_shape_of(slot.param),
                        Device::current().memory_is_real())) {
  for (size_t i = 0; i < slot.mesh_axes.size(); ++i) {
    const auto add_to = [&](MeshAxes& axes) {
      axes.insert(axes.end(), slot.mesh_axes[i].begin(), slot.mesh_axes[i].end());
    };
    if (factoring_.dims[i] == FactorDim::kRow) add_to(row_axes_);
    if (factoring_.dims[i] == FactorDim::kColumn) add_to(column_axes_);
    if (factoring_.dims[i] != FactorDim::kBatch) add_to(axes_);
  }
  if (const auto* map = std::get_if<HParamMap<bool>>(&options.multiply_by_parameter_scale))
    scaled_by_param_ = map->at(slot.name);
  else
    scaled_by_param_ = std::get<bool>(options.multiply_by_parameter_scale);
  if (factoring_.factored) {
    v_row_ = zero_state(DType::f32, layout_.row_shape, Device::current());
    v_col_ = zero_state(DType::f32, layout_.column_shape, Device::current());
    keep_place(v_row_.view, slot.param, layout_.row_dims);
    keep_place(v_col_.view, slot.param, layout_.column_dims);
  } else {
    v_ = zero_state_like(slot.param, Device::current());
  }
  if (options.beta1) m_ = zero_state_like(slot.param, Device::current(), options.dtype_momentum);
  for (auto* squares : {&gradient_squares_, &param_squares_, &update_squares_})
    squares->resize(layout_.lines.size());
}

void AdafactorParam::list_state(const ParamSlot& slot, std::vector<StateArray>& arrays) const {
  std::vector<size_t> all(slot.axes.size());
  std::iota(all.begin(), all.end(), size_t{0});
  const auto add = [&](const char* field, const StateBuffer& state,
                       const std::vector<size_t>& dims) {
    if (state.buffer == nullptr) return;
    StateArray& array = arrays.emplace_back(slot.name + "/" + field, std::vector<std::string>{},
                                            state.view, state.device, MeshAxes{});
    for (const size_t i : dims) {
      array.axes.push_back(slot.axes[i].name);
      if (slot.mesh_axes.empty()) continue;
      const MeshAxes& shard = slot.mesh_axes[i];
      array.mesh_axes.insert(array.mesh_axes.end(), shard.begin(), shard.end());
    }
  };
  add("v_row", v_row_, layout_.row_dims);
  add("v_col", v_col_, layout_.column_dims);
  add("v", v_, all);
  add("m", m_, all);
}

AdafactorShape AdafactorParam::gpu_shape(const ParamSlot& slot) const {
  std::vector<MomentAxisSize> axes;
  for (size_t i = 0; i < factoring_.dims.size(); ++i)
    axes.push_back({moment_axis(factoring_.dims[i]), slot.param.size(static_cast<int>(i)),
                    slot.param.global[i]});
  return adafactor_shape(axes);
}

AdafactorGpuArray AdafactorParam::on_gpu(const ParamSlot& slot) const {
  const auto floats = [](const StateBuffer& state) {
    return state.buffer != nullptr ? state.floats() : nullptr;
  };
  return {.gradient = FloatPointer(slot.grad),
          .param = slot.param.data<float>(),
          .v_row = floats(v_row_),
          .v_col = floats(v_col_),
          .v = floats(v_),
          .momentum = momentum(),
          .momentum_is_bf16 = m_.view.dtype == DType::bf16,
          .copy = slot.copy.absent() ? nullptr : slot.copy.pointer,
          .not_finite = slot.not_finite,
          .scaled_by_param = scaled_by_param_,
          .param_squares = cached_squares_,
          .shape = gpu_shape(slot),
          .sums = sums_on_gpu_};
}

std::vector<double> AdafactorParam::by_batch(const std::vector<float>& line_squares) const {
  std::vector<double> sums(static_cast<size_t>(layout_.batches));
  for (size_t l = 0; l < line_squares.size(); ++l)
    sums[static_cast<size_t>(layout_.lines[l].batch)] += static_cast<double>(line_squares[l]);
  return sums;
}

/// Runs the first pass: squares by line into the members, and summed along lines. A chunk adds in
/// float32 into an array of its own; chunks are added in double, in order.
std::vector<double> AdafactorParam::along_sums(int64_t size) {
  struct Partial {
    int64_t origin = 0;
    std::vector<float> squares;
  };
  std::vector<Partial> partials(layout_.chunk_ends.size());
  for_each_block(partials.size(), [&](size_t i) {
    const cpu::AdafactorLines lines = chunk(i);
    int64_t first = lines[0].along, last = 0;
    for (const auto& line : lines) {
      first = std::min(first, line.along);
      last = std::max(last, line.along + line.length);
    }
    partials[i].origin = first;
    partials[i].squares.assign(static_cast<size_t>(last - first), 0.0f);
    const auto at = static_cast<size_t>(lines.data() - layout_.lines.data());
    cpu::factored_sums(lines, arrays_, first, partials[i].squares.data(),
                       gradient_squares_.data() + at, param_squares_.data() + at);
  });
  std::vector<double> sums(static_cast<size_t>(size));
  for (const Partial& partial : partials)
    for (size_t k = 0; k < partial.squares.size(); ++k)
      sums[static_cast<size_t>(partial.origin) + k] += static_cast<double>(partial.squares[k]);
  return sums;
}

void AdafactorParam::take_sums(const AdafactorOptions& options, const StepNumbers& numbers,
                               const ParamSlot& slot, FloatPointer gradient) {
  arrays_ = {gradient, numbers.gradient_scale, slot.param.data<float>(), momentum(),
             m_.view.dtype == DType::bf16};
  if (factoring_.factored) {
    const bool row = layout_.along_is_row;
    std::vector<double>& across = row ? column_sums_ : row_sums_;
    (row ? row_sums_ : column_sums_) = along_sums((row ? v_row_ : v_col_).view.elements());
    across.assign(static_cast<size_t>((row ? v_col_ : v_row_).view.elements()), 0.0);
    for (size_t l = 0; l < layout_.lines.size(); ++l)
      across[static_cast<size_t>(layout_.lines[l].across)] +=
          static_cast<double>(gradient_squares_[l]);
  } else {
    const cpu::AdafactorMoments moments{v_.floats(), numbers.decay, numbers.mixing,
                                        f32(options.epsilon1), options.skip_nan_updates};
    for_each_block(layout_.chunk_ends.size(), [&](size_t i) {
      const auto at = chunk(i).data() - layout_.lines.data();
      slot.watch(cpu::full_moments(chunk(i), arrays_, moments, update_squares_.data() + at,
                                   param_squares_.data() + at));
    });
  }
  param_sums_ = by_batch(param_squares_);
}

void AdafactorParam::add_sums(Bucket& bucket) {
  if (factoring_.factored) {
    bucket.add(numbers(row_sums_, v_row_.view.elements()), column_axes_);
    bucket.add(numbers(column_sums_, v_col_.view.elements()), row_axes_);
  }
}

void AdafactorParam::place_sums(DeviceBucket& moments, DeviceBucket& means, DeviceBucket& squares) {
  if (!sharded()) return;
  const bool rows = !row_axes_.empty(), columns = !column_axes_.empty(), both = rows && columns;
  const auto add_moment = [&](double** sums, const StateBuffer& state, const MeshAxes& axes) {
    moments.add(sums, state.view.elements(), axes);
    if (!both) moments.add(&sums_on_gpu_.weighted, state.view.elements(), axes);
  };
  if (columns) add_moment(&sums_on_gpu_.rows, v_row_, column_axes_);
  if (rows) add_moment(&sums_on_gpu_.columns, v_col_, row_axes_);
  if (rows) (both ? means : moments).add(&sums_on_gpu_.means, layout_.batches, row_axes_);
  DeviceBucket& last = both ? squares : moments;
  last.add(&sums_on_gpu_.param, layout_.batches, axes_);
  if (both || !factoring_.factored) last.add(&sums_on_gpu_.update, layout_.batches, axes_);
}

void AdafactorParam::take_moments(const AdafactorOptions& options, const StepNumbers& numbers,
                                  const ParamSlot& slot) {
  if (!factoring_.factored) return;
  const auto mix = [&](const std::vector<double>& sums, double count, const StateBuffer& state,
                       std::vector<float>& next) {
    next.resize(sums.size());
    for (size_t k = 0; k < sums.size(); ++k) {
      float& old = state.floats()[k];
      const float mean = f32(sums[k] / count + options.epsilon1);
      next[k] = numbers.decay * old + numbers.mixing * mean;
      if (!options.skip_nan_updates || !std::isnan(next[k])) old = next[k];
      slot.watch(std::isfinite(old));
    }
  };
  mix(row_sums_, layout_.row_count, v_row_, new_row_);
  mix(column_sums_, layout_.column_count, v_col_, new_col_);
  means_.assign(static_cast<size_t>(layout_.batches), 0.0);
  for (size_t k = 0; k < new_row_.size(); ++k)
    means_[row_batch(k)] += static_cast<double>(new_row_[k]) / layout_.rows;
}

/// row factor = (v_row / its mean over ROW axes)^-1/2, column factor = v_col^-1/2.
void AdafactorParam::make_factors() {
  row_factor_.resize(new_row_.size());
  for (size_t k = 0; k < new_row_.size(); ++k)
    row_factor_[k] = 1.0f / std::sqrt(new_row_[k] / f32(means_[row_batch(k)]));
  col_factor_.resize(new_col_.size());
  for (size_t k = 0; k < new_col_.size(); ++k) col_factor_[k] = 1.0f / std::sqrt(new_col_[k]);
}

void AdafactorParam::take_squares(const AdafactorOptions& options) {
  if (factoring_.factored) {
    make_factors();
    if (options.clipping_threshold)
      for_each_block(layout_.chunk_ends.size(), [&](size_t i) {
        cpu::factored_squares(chunk(i), arrays_, factors(),
                              update_squares_.data() + (chunk(i).data() - layout_.lines.data()));
      });
  }
  update_sums_ = by_batch(update_squares_);
}

/// What the unclipped update of each batch is multiplied by: learning rate, size of the parameter,
/// and clipping by the root mean square of the update.
std::vector<float> AdafactorParam::steps(const AdafactorOptions& options,
                                         float learning_rate) const {
  std::vector<float> steps(static_cast<size_t>(layout_.batches), learning_rate);
  if (scaled_by_param_) {
    for (size_t b = 0; b < steps.size(); ++b) {
      float size =
          nan_max(f32(options.epsilon2), f32(std::sqrt(param_sums_[b] / layout_.batch_elements)));
      if (options.max_parameter_scale) size = std::min(size, f32(*options.max_parameter_scale));
      steps[b] *= size;
    }
  }
  if (options.clipping_threshold) {
    for (size_t b = 0; b < steps.size(); ++b) {
      const float size = f32(std::sqrt(update_sums_[b] / layout_.batch_elements));
      steps[b] /= nan_max(1.0f, size / f32(*options.clipping_threshold));
    }
  }
  return steps;
}

void AdafactorParam::apply(const AdafactorOptions& options, const StepNumbers& numbers,
                           const ParamSlot& slot) {
  const std::vector<float> step = steps(options, numbers.learning_rate);
  const cpu::AdafactorApply apply{step.data(), numbers.keep, beta1_of(options),
                                  1.0f - f32(options.beta1.value_or(0)), options.skip_nan_updates};
  for_each_block(layout_.chunk_ends.size(), [&](size_t i) {
    slot.watch(factoring_.factored ? cpu::factored_apply(chunk(i), arrays_, factors(), apply)
                                   : cpu::full_apply(chunk(i), arrays_, v_.floats(), apply));
  });
}

void AdafactorParam::update(const AdafactorOptions& options, const StepNumbers& numbers,
                            const ParamSlot& slot, FloatPointer gradient) {
  if (layout_.lines.empty()) return;
  take_sums(options, numbers, slot, gradient);
  take_moments(options, numbers, slot);
  take_squares(options);
  apply(options, numbers, slot);
}

class Adafactor final : public Optimizer {
 public:
  explicit Adafactor(const AdafactorOptions& options) : options_(options) {}

  void init(std::span<const ParamSlot> params) override {
    params_.clear();
    slots_.assign(params.begin(), params.end());
    for (const ParamSlot& slot : params) params_.emplace_back(options_, slot);
    moments_ = means_ = squares_ = {};
    for (AdafactorParam& param : params_) param.place_sums(moments_, means_, squares_);
    if (Device::current().is_cpu() || !Device::current().memory_is_real()) return;
    const MemoryScope scope(MemoryKind::kOptimizer);
    for (DeviceBucket* bucket : {&moments_, &means_, &squares_})
      bucket->allocate(Device::current());
    cached_squares_ = Device::current().memory().allocate(cached_bytes());
    forget_squares();
    auto* place = reinterpret_cast<float*>(cached_squares_.get());
    for (size_t i = 0; i < params_.size(); ++i)
      if (const int64_t tiles = params_[i].cached_tiles(slots_[i]); tiles > 0)
        params_[i].place_cached(place), place += tiles;
  }
  UpdateMemory update_memory(int64_t multiprocessors) const override {
    std::vector<AdafactorShape> sharded, others;
    for (size_t i = 0; i < params_.size(); ++i)
      (params_[i].sharded() ? sharded : others).push_back(params_[i].gpu_shape(slots_[i]));
    const int64_t window = 3 * multiprocessors;
    const int64_t exchanged = moments_.bytes() + means_.bytes() + squares_.bytes();
    return {cached_bytes() + exchanged, std::max(adafactor_scratch_bytes(sharded, true, window),
                                                 adafactor_scratch_bytes(others, false, window))};
  }
  std::vector<StateArray> state() override {
    std::vector<StateArray> arrays;
    for (size_t i = 0; i < params_.size(); ++i) params_[i].list_state(slots_[i], arrays);
    return arrays;
  }
  void simulate_sums(const UpdateArgs& args, std::span<const ParamSlot> params) override {
    clip_.simulate(args, params, options_.global_norm_clip_threshold.value_or(0.0));
    if (args.simulates_gpu) {
      for (const DeviceBucket* bucket : {&moments_, &means_, &squares_}) bucket->sum(args.reducer);
      return;
    }
    for (const auto add :
         {&AdafactorParam::add_sums, &AdafactorParam::add_means, &AdafactorParam::add_squares}) {
      Bucket bucket;
      for (AdafactorParam& param : params_) (param.*add)(bucket);
      bucket.sum(args.reducer);
    }
  }
  void update(const UpdateArgs& args, std::span<const ParamSlot> params) override {
    QT_ASSERT(params.size() == params_.size());
    const StepNumbers numbers = numbers_of(args, params);
    if (!Device::current().is_cpu()) return update_on_gpu(numbers, params, args);
    if (!updates_apart()) return update_in_phases(args, numbers, params);
    update_some(numbers, params, 0, params.size());
  }
  bool updates_apart() const override {
    return std::ranges::none_of(params_, [](const auto& p) { return p.sharded(); });
  }
  void update_part(const UpdateArgs& args, std::span<const ParamSlot> params, size_t begin,
                   size_t end) override {
    if (!updates_apart()) return Optimizer::update_part(args, params, begin, end);
    QT_ASSERT(args.gradient_norm || options_.global_norm_clip_threshold.value_or(0.0) == 0);
    update_some(numbers_of(args, params), params, begin, end);
  }

 private:
  void forget_squares() { Device::current().fill(cached_squares_.get(), 0xff, cached_bytes()); }
  int64_t cached_bytes() const {
    int64_t tiles = 0;
    for (size_t i = 0; i < params_.size(); ++i) tiles += params_[i].cached_tiles(slots_[i]);
    return tiles * size_of(DType::f32);
  }
  /// Gradients of parameters [begin, end); `zeros`, in the place of absent ones, outlive them.
  std::vector<FloatPointer> gradients_of(std::span<const ParamSlot> params, size_t begin,
                                         size_t end, std::vector<StateBuffer>& zeros) const {
    zeros.resize(params.size());
    std::vector<FloatPointer> gradients(params.size());
    for (size_t i = begin; i < end; ++i) {
      QT_ASSERT(params[i].name == slots_[i].name);
      if (params[i].grad.absent()) zeros[i] = zero_state_like(params[i].param, Device::cpu());
      gradients[i] = params[i].grad.absent() ? zeros[i].floats() : FloatPointer(params[i].grad);
    }
    return gradients;
  }
  /// Of parameters [begin, end), none of them sharded.
  void update_some(const StepNumbers& numbers, std::span<const ParamSlot> params, size_t begin,
                   size_t end) {
    std::vector<StateBuffer> zeros;
    const std::vector<FloatPointer> gradients = gradients_of(params, begin, end, zeros);
    const auto update_one = [&](size_t i) {
      params_[i].update(options_, numbers, params[i], gradients[i]);
    };
    // All threads on each array that is a large part of the work; then each thread on arrays of its
    // own, whose three passes find them in its cache.
    const auto [together, alone] = split_work(begin, end);
    for (size_t i : together) update_one(i);
    const auto count = static_cast<int64_t>(alone.size());
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t k = 0; k < count; ++k) update_one(alone[static_cast<size_t>(k)]);
  }
  /// Indices of parameters [begin, end), largest first: those for all threads, those for one.
  std::pair<std::vector<size_t>, std::vector<size_t>> split_work(size_t begin, size_t end) const {
    std::vector<size_t> order(end - begin);
    std::iota(order.begin(), order.end(), begin);
    int64_t total = 0;
    for (const size_t i : order) total += slots_[i].param.elements();
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return slots_[a].param.elements() > slots_[b].param.elements();
    });
    const int64_t share = total / (2 * omp_get_max_threads());
    const auto small = std::find_if(order.begin(), order.end(),
                                    [&](size_t i) { return slots_[i].param.elements() <= share; });
    return {{order.begin(), small}, {small, order.end()}};
  }
  /// Arrays that are sharded: each phase of all, and one bucket of sums between two.
  void update_in_phases(const UpdateArgs& args, const StepNumbers& numbers,
                        std::span<const ParamSlot> params) {
    std::vector<StateBuffer> zeros;
    const std::vector<FloatPointer> gradients = gradients_of(params, 0, params.size(), zeros);
    Bucket sums, means, squares;
    for (size_t i = 0; i < params.size(); ++i)
      params_[i].take_sums(options_, numbers, params[i], gradients[i]);
    for (AdafactorParam& param : params_) param.add_sums(sums);
    sums.sum(args.reducer);
    for (size_t i = 0; i < params.size(); ++i)
      params_[i].take_moments(options_, numbers, params[i]);
    for (AdafactorParam& param : params_) param.add_means(means);
    means.sum(args.reducer);
    for (AdafactorParam& param : params_) param.take_squares(options_);
    for (AdafactorParam& param : params_) param.add_squares(squares);
    squares.sum(args.reducer);
    for (size_t i = 0; i < params.size(); ++i) params_[i].apply(options_, numbers, params[i]);
  }
  StepNumbers numbers_of(const UpdateArgs& args, std::span<const ParamSlot> params) const;
  void update_on_gpu(const StepNumbers& numbers, std::span<const ParamSlot> params,
                     const UpdateArgs& args);

  AdafactorOptions options_;
  std::vector<AdafactorParam> params_;
  std::vector<ParamSlot> slots_;  // names and axes
  DeviceBucket moments_, means_,
      squares_;            // on a GPU, of sharded parameters; on a CPU nothing is allocated
  Buffer cached_squares_;  // of parameters, by tile; not of a checkpoint
  DeviceClip clip_;
};

void Adafactor::update_on_gpu(const StepNumbers& numbers, std::span<const ParamSlot> params,
                              const UpdateArgs& args) {
  std::vector<AdafactorGpuArray> arrays;
  for (size_t i = 0; i < params.size(); ++i)
    if (params[i].param.elements() > 0) arrays.push_back(params_[i].on_gpu(params[i]));
  const AdafactorStep step{.learning_rate = numbers.learning_rate,
                           .decay = numbers.decay,
                           .mixing = numbers.mixing,
                           .gradient_scale = numbers.gradient_scale,
                           .keep = numbers.keep,
                           .beta1 = beta1_of(options_),
                           .one_minus_beta1 = 1.0f - f32(options_.beta1.value_or(0)),
                           .epsilon1 = options_.epsilon1,
                           .epsilon2 = options_.epsilon2,
                           .clipping_threshold = options_.clipping_threshold.value_or(0),
                           .max_parameter_scale = options_.max_parameter_scale.value_or(0),
                           .skip_nan = options_.skip_nan_updates};
  Device& device = Device::current();
  if (!args.params_unwritten) forget_squares();
  const auto exchange = [&](AdafactorExchange what) {
    const DeviceBucket& bucket = what == AdafactorExchange::moments ? moments_
                                 : what == AdafactorExchange::means ? means_
                                                                    : squares_;
    bucket.sum(args.reducer);
  };
  const UpdateControl* control =
      clip_.decide(args, params, options_.global_norm_clip_threshold.value_or(0.0));
  device.kernels().update_adafactor(arrays, step, control, exchange, device.stream());
}

StepNumbers Adafactor::numbers_of(const UpdateArgs& args, std::span<const ParamSlot> params) const {
  StepNumbers n{
      .learning_rate = args.learning_rate, .decay = 0, .mixing = 0, .gradient_scale = 1, .keep = 1};
  const float t = static_cast<float>(args.step - options_.step_offset) + 1.0f;
  n.decay = 1.0f - std::pow(t, f32(-options_.decay_rate));
  n.mixing = 1.0f - n.decay;
  double weight_decay = options_.weight_decay_rate.value_or(0.0);
  if (const double exponent = options_.weight_decay_rate_lr_exponent.value_or(0.0); exponent != 0)
    weight_decay = options_.weight_decay_rate.value_or(1.0) *
                   std::pow(static_cast<double>(args.learning_rate), exponent);
  n.keep = f32(1.0 - weight_decay);
  if (const double limit = options_.global_norm_clip_threshold.value_or(0.0);
      limit != 0 && Device::current().is_cpu()) {
    const double norm = args.gradient_norm
                            ? *args.gradient_norm
                            : check_gradients(params, {.reducer = args.reducer}).norm;
    n.gradient_scale = f32(std::isnan(norm) ? norm : limit * std::min(1.0 / limit, 1.0 / norm));
  }
  return n;
}

}  // namespace

FactorDim factor_dim_from_name(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  if (lower == "row") return FactorDim::kRow;
  if (lower == "col" || lower == "column") return FactorDim::kColumn;
  if (lower == "batch") return FactorDim::kBatch;
  if (lower == "none" || lower == "unfactorized") return FactorDim::kNone;
  if (lower == "heuristic_rule") return FactorDim::kHeuristic;  // %adafactor.HEURISTIC_RULE
  fail(
      ExitCode::kUsage,
      "logical_factor_rules: '{}' is not a factor dimension; known: ROW, COL, COLUMN, BATCH, NONE, "
      "UNFACTORIZED",
      name);
}

FactorRules standard_logical_factor_rules() {
  constexpr auto kRow = FactorDim::kRow, kColumn = FactorDim::kColumn, kBatch = FactorDim::kBatch,
                 kNone = FactorDim::kNone;
  return {{"vocab", kColumn},
          {"embed", kRow},
          {"mlp", kColumn},
          {"heads", kColumn},
          {"kv", kColumn},
          {"joined_kv", kColumn},
          {"relpos_buckets", kNone},
          {"layers", kBatch},
          {"stack", kBatch},
          {"q_wi_fused", kColumn},
          {"o_wo_fused", kColumn},
          {"kv_fused", kColumn},
          {"multiquery_heads", kColumn},
          {"layer_norm_scale", kNone},
          {"mlp_activations", kColumn}};
}

FactorRules moe_logical_factor_rules() {
  FactorRules rules = standard_logical_factor_rules();
  rules["expert"] = FactorDim::kBatch;
  rules["expert_mlp"] = FactorDim::kColumn;
  rules["mlp_embed"] = FactorDim::kRow;
  rules["unmodeled"] = FactorDim::kNone;
  return rules;
}

OptimizerPtr adafactor(const AdafactorOptions& options) {
  QT_CHECK(options.factored || !options.factor_map,
           "Adafactor: factored is False, but a factor_map is given; drop one of them");
  return std::make_shared<Adafactor>(options);
}

}  // namespace quintet
