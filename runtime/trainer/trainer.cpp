#include "runtime/trainer/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "runtime/execution/rank_sums.h"
#include "runtime/execution/tape.h"
#include "runtime/execution/turns.h"
#include "runtime/mesh/sharding.h"
#include "runtime/ops/ops.h"
#include "runtime/optim/host_mirror.h"
#include "runtime/optim/path_pattern.h"
#include "runtime/profile/profile.h"
#include "runtime/profile/step_log.h"
#include "runtime/trainer/batch_rows.h"

namespace quintet {
namespace {

int64_t batch_rows(const HostArrays& batch) {
  for (const auto& [name, array] : batch)
    if (name != kStepCounts && !array.shape.empty()) return array.shape[0];
  fail(ExitCode::kData, "trainer: the batch has no features");
}

ParameterLayers layers_of(const Parameters& parameters) {
  ParameterLayers layers;
  for (const ParamInfo& info : parameters.all()) layers.add(info.used(), info.name);
  return layers;
}

/// A copy in ordinary memory of a parameter of the current device.
std::vector<float> values_of(const View& view) {
  std::vector<float> values(static_cast<size_t>(view.elements()));
  Device::current().copy_out(values.data(), view.data<float>(),
                             view.elements() * size_of(DType::f32));
  return values;
}

/// Sums over the ranks of this thread's mesh.
class MeshReducer final : public Reducer {
 public:
  void sum(std::span<double> values, const MeshAxes& axes) override {
    reduce_over_ranks(values, axes);
  }
  void max(std::span<double> values, const MeshAxes& axes) override {
    reduce_over_ranks(values, axes, Reduction::max);
  }
  void sum_on_device(std::span<double> values, const MeshAxes& axes) override {
    sum_over_ranks_on_device(values, axes);
  }
  bool counts(const MeshAxes& axes, const MeshAxes& ranks) const override {
    return ExecutionContext::current().sharding->has_first_copy(axes, ranks);
  }
  bool is_abstract() const override { return !Device::current().memory_is_real(); }
};

double squares_of(std::span<const float> values) {
  return sum_of_squares(values.data(), static_cast<int64_t>(values.size()));
}

double largest(std::span<const float> values) {
  float most = 0;
  for (const float v : values) most = std::max(most, std::abs(v));
  return static_cast<double>(most);
}

/// T5X's WeightMetricsComputer, from the parameters before and after an update.
void add_weight_metrics(Metrics& metrics, const std::vector<ParamSlot>& slots,
                        const std::vector<std::vector<float>>& before,
                        const std::vector<double>& gradient_squares, Reducer& reducer) {
  std::vector<double> squares;     // of a parameter, of its update, of update / old parameter
  std::vector<double> largest_of;  // of a parameter
  for (size_t i = 0; i < slots.size(); ++i) {
    const std::vector<float> after = values_of(slots[i].param);
    std::vector<float> update = after;
    for (size_t j = 0; j < update.size(); ++j) update[j] -= before[i][j];
    std::vector<float> divided = update;
    for (size_t j = 0; j < divided.size(); ++j) divided[j] /= before[i][j];
    squares.insert(squares.end(), {squares_of(after), squares_of(update), squares_of(divided)});
    largest_of.push_back(largest(after));
  }
  Bucket sums, maxima;
  for (size_t i = 0; i < slots.size(); ++i) {
    sums.add({&squares[3 * i], 3}, slots[i].shard_axes());
    maxima.add({&largest_of[i], 1}, slots[i].shard_axes());
  }
  sums.sum(&reducer);
  maxima.max(&reducer);
  for (size_t i = 0; i < slots.size(); ++i) {
    double elements = 1;
    for (const Axis& axis : slots[i].axes) elements *= static_cast<double>(axis.size);
    const auto rms = [&](double sum) { return std::sqrt(sum / elements); };
    const std::string& name = slots[i].name;
    metrics["weight_rms/" + name] = {rms(squares[3 * i]), 1, true};
    metrics["weight_gradient_rms/" + name] = {rms(gradient_squares[i]), 1, true};
    metrics["weight_update_rms/" + name] = {rms(squares[3 * i + 1]), 1, true};
    metrics["weight_update_divided_by_weight_rms/" + name] = {rms(squares[3 * i + 2]), 1, true};
    metrics["weight_max/" + name] = {largest_of[i], 1, true};
  }
}

/// Throws where something else keeps sums of gradients in float32.
void check_gradient_dtype(const TrainerOptions& options, const Optimizer& optimizer) {
  if (options.gradient_dtype == DType::f32) return;
  QT_CHECK(
      options.reduction == GradientReduction::microbatch,
      "--gradient_dtype=bfloat16, --reduce_gradients=step: the sum of a rank's microbatches is "
      "kept in float32 until the last of them; leave one of the two flags out");
  QT_CHECK(
      !optimizer.example_clip(),
      "--gradient_dtype=bfloat16: the optimizer clips the gradient of each example, whose sums "
      "are float32; leave the flag out");
}

}  // namespace

bool offloads_masters(const TrainerOptions& options) {
  return options.optimizer_offload && !Device::current().is_cpu() &&
         ExecutionContext::current().sharding == nullptr;
}

Trainer::Trainer(LossFunction loss, Parameters& parameters, OptimizerPtr optimizer,
                 TrainerOptions options, Key key)
    : loss_(std::move(loss)),
      parameters_(parameters),
      optimizer_(std::move(optimizer)),
      options_(std::move(options)),
      key_(key),
      device_(Device::current()),
      sharding_(ExecutionContext::current().sharding),
      layers_(layers_of(parameters)),
      gather_cache_(options_.gather_ahead_bytes, layers_),
      graph_(
          parameters,
          [this](const HostArrays& batch, Key step_key,
                 const std::function<void(const LossOutput&)>& done) {
            gather_cache_.begin_step(options_.interleave ? 2 : 1);
            const auto weights = fp8_.cast_weights();
            if (const auto clip = optimizer_->example_clip())
              sum_clipped_gradients(batch, step_key, *clip, done);
            else
              compute_gradients(batch, step_key, done);
            gather_cache_.end_step();
          },
          options_.step_graph && device_.can_record() && !optimizer_->example_clip()),
      fp8_(parameters, options_.fp8) {
  QT_CHECK(
      !options_.interleave || options_.num_microbatches % 2 == 0,
      "--interleave_microbatches takes two microbatches at a time, but there is an odd number of "
      "them, {}; bind trainer.Trainer.num_microbatches to an even one",
      options_.num_microbatches);
  QT_CHECK(!optimizer_->example_clip() ||
               (!options_.interleave && options_.reduction == GradientReduction::microbatch),
           "--interleave_microbatches, --reduce_gradients=step: the optimizer clips the gradient "
           "of each example before it "
           "is added to others; leave them out");
  check_gradient_dtype(options_, *optimizer_);
  const int64_t count[] = {static_cast<int64_t>(parameters_.trained().size())};
  marks_ = zero_state(DType::i32, count, device_);
  if (options_.optimizer_offload && !device_.is_cpu()) {
    const bool masters = offloads_masters(options_);
    if (masters) parameters.keep_masters_on_host();
    if (device_.memory_is_real())
      optimizer_ = host_mirror(std::move(optimizer_), {options_.gradient_dtype, masters});
  }
  optimizer_->init(slots());
}

std::vector<ParamSlot> Trainer::slots() const {
  std::vector<ParamSlot> slots;
  auto* mark = marks_.view.data<int32_t>();
  for (const ParamInfo* info : parameters_.trained())
    slots.push_back({info->name, info->spec.axes, info->value.local(), info->used().grad().local(),
                     info->compute.local(), info->value.layout().dims, mark++,
                     info->has_more_axes_in_t5x});
  return slots;
}

void Trainer::compute_gradients(const HostArrays& batch, Key key,
                                const std::function<void(const LossOutput&)>& done) {
  const int64_t rows = batch_rows(batch), parts = std::max<int64_t>(options_.num_microbatches, 1);
  QT_CHECK(rows % parts == 0, "num_microbatches {} does not divide the batch of {} rows", parts,
           rows);
  const int64_t together = options_.interleave ? 2 : 1;
  const bool once = options_.reduction == GradientReduction::step;
  std::vector<LossOutput> losses(static_cast<size_t>(together));
  const auto run = [&](int64_t part, GradientBuckets& buckets) {
    LossOutput& step = losses[static_cast<size_t>(part % together)];
    Tape tape = options_.loss_is_total ? Tape(buckets) : Tape();
    {
      Tape::Recording recording(tape);
      step = loss_(batch, part * (rows / parts), (part + 1) * (rows / parts), key);
    }
    tape.backward(step.loss, buckets);
  };
  GradientBuckets of_step(parts, layers_, gradient_dtypes());
  for (int64_t part = 0; part < parts; part += together) {
    GradientBuckets of_part(together, layers_, gradient_dtypes());
    GradientBuckets& buckets = once ? of_step : of_part;
    if (options_.interleave)
      run_in_turns(std::array<std::function<void()>, 2>{[&] { run(part, buckets); },
                                                        [&] { run(part + 1, buckets); }});
    else
      run(part, buckets);
    of_part.finish();
    for (const LossOutput& step : losses) done(step);
  }
  of_step.finish();
  scale_gradients();
}

/// Of each example of all ranks one after the other: on a mesh the ranks of other data shards take part with gradients of 0.
void Trainer::sum_clipped_gradients(const HostArrays& batch, Key key, double clip,
                                    const std::function<void(const LossOutput&)>& done) {
  QT_CHECK(options_.num_microbatches == batch_rows(batch),
           "trainer.Trainer.num_microbatches: the optimizer clips the gradient of each example, so "
           "that each is a "
           "microbatch; expected {}, found {}",
           batch_rows(batch), options_.num_microbatches);
  const auto [shard, shards, axes] = batch_part();
  const std::vector<const ParamInfo*> trained = parameters_.trained();
  Tensors sums(trained.size());
  MeshReducer reducer;
  for (int64_t example = 0; example < options_.num_microbatches * shards; ++example) {
    const int64_t row = example / shards;
    GradientBuckets buckets(1, layers_, gradient_dtypes());
    Tape tape;
    LossOutput step;
    {
      Tape::Recording recording(tape);
      step = loss_(batch, row, row + 1, key);
    }
    tape.backward(step.loss, buckets, example % shards == shard ? 1 : 0);
    buckets.finish();
    scale_gradients();
    const double norm = check_gradients(slots(), {.reducer = &reducer}).norm;
    for (size_t i = 0; i < trained.size(); ++i) {
      const Tensor grad = trained[i]->used().grad();
      if (!grad) continue;
      const Tensor clipped = GradientBuckets::scaled(grad, 1 / std::max(norm / clip, 1.0));
      sums[i] = sums[i] ? GradientBuckets::accumulate(sums[i], clipped) : clipped;
    }
    drop_gradients();
    if (example % shards == 0) done(step);
  }
  for (size_t i = 0; i < trained.size(); ++i) trained[i]->used().set_grad(sums[i]);
}

void Trainer::scale_gradients() {
  if (options_.gradient_scale == 1 || options_.scaled_gradients.empty()) return;
  const PathPattern pattern("^" + options_.scaled_gradients);
  for (const ParamInfo& info : parameters_.all())
    if (const Tensor grad = info.used().grad(); grad && pattern.found_in(info.name))
      info.used().set_grad(GradientBuckets::scaled(grad, options_.gradient_scale));
}

ExecutionContext Trainer::context() {
  ExecutionContext context = ExecutionContext::current();
  context.device = &device_;
  context.sharding = sharding_;
  context.gather_cache = &gather_cache_;
  return context;
}

std::vector<LossOutput> Trainer::take_gradients(const HostArrays& batch) {
  Key key = fold_in(key_, static_cast<uint32_t>(step_));
  // T5X splits the key before each microbatch, but of the same key: its loop does not carry the other half on.
  if (options_.t5x_dropout && options_.num_microbatches > 1) key = split_at(key, 1);
  auto losses = graph_.run(batch, key);
  if (StepLog* log = ExecutionContext::current().log) log->section("gradient check and optimizer");
  return losses;
}

GradientDTypes Trainer::gradient_dtypes() const {
  return {.travels = options_.reduction_dtype, .stored = options_.gradient_dtype};
}

int64_t Trainer::gradient_bytes() const {
  return parameters_.elements() * size_of(options_.gradient_dtype);
}

void Trainer::drop_gradients() {
  for (const ParamInfo& info : parameters_.all()) info.used().set_grad({});
}

std::string Trainer::first_bad_gradient(const HostArrays& batch) {
  const ContextScope in_context(context());
  MeshReducer reducer;
  take_gradients(batch);
  const GradientCheck check = check_gradients(slots(), {.reducer = &reducer});
  fp8_.discard();
  drop_gradients();
  return check.first_bad;
}

void Trainer::update(UpdateArgs args, std::span<const ParamSlot> params) {
  ProfileScope scope("optimizer", parameters_.elements() * 4);
  args.params_unwritten = parameters_.writes() == last_update_;
  optimizer_->update(args, params);
  last_update_ = parameters_.count_write();
}

/// The check first, then the update that it allows.
GradientCheck Trainer::update_if_finite(UpdateArgs args, const GradientCheckOptions& options,
                                        Metrics& weights) {
  const std::vector<ParamSlot> params = slots();
  const GradientCheck check = [&] {
    ProfileScope scope("check_gradients", gradient_bytes());
    return check_gradients(params, options);
  }();
  check.all_finite ? fp8_.update(nullptr) : fp8_.discard();
  if (!check.all_finite && !optimizer_->takes_not_finite()) return check;
  std::vector<std::vector<float>> before;
  if (options_.weight_metrics)
    for (const ParamSlot& slot : params) before.push_back(values_of(slot.param));
  if (check.all_finite) args.gradient_norm = check.norm;
  update(args, params);
  if (options_.weight_metrics)
    add_weight_metrics(weights, params, before, check.squares, *args.reducer);
  return check;
}

/// On a GPU: the update is queued behind the check and reads there whether it is to do something.
QueuedCheck Trainer::queue_update(UpdateArgs args, const GradientCheckOptions& options) {
  const std::vector<ParamSlot> params = slots();
  QueuedCheck queued = [&] {
    ProfileScope scope("check_gradients", gradient_bytes());
    return QueuedCheck(params, options);
  }();
  args.squares = queued.squares();
  fp8_.update(queued.control());
  if (!optimizer_->takes_not_finite()) args.control = queued.control();
  update(args, params);
  return queued;
}

StepResult Trainer::train(const HostArrays& batch) {
  const ContextScope in_context(context());
  MeshReducer reducer;
  const std::vector<LossOutput> losses = take_gradients(batch);
  const int64_t updates = step_ - skipped_;
  const float rate = options_.learning_rate ? options_.learning_rate(updates) : 0.0f;
  const UpdateArgs args{.step = updates,
                        .learning_rate = rate,
                        .reducer = &reducer,
                        .examples = options_.num_microbatches * batch_part().count};
  const GradientCheckOptions options{
      .reducer = &reducer, .marks = marks_.view.data<int32_t>(), .each = options_.weight_metrics};
  Metrics weights;
  device_.order_after_side_copies();  // of what the update changes
  const bool on_host = device_.is_cpu() || options_.weight_metrics || options_.optimizer_offload;
  GradientCheck check;
  Tensors reads = reads_of(losses);
  std::vector<HostArray> values;
  if (on_host) {
    check = update_if_finite(args, options, weights);
    values = read_together(reads);
  } else {  // the host waits once
    const QueuedCheck queued = queue_update(args, options);
    reads.push_back(queued.summary());
    values = read_together(reads);
    check = queued.check(values.back());
    if (!check.all_finite && !optimizer_->takes_not_finite()) optimizer_->take_back();
  }
  StepResult result{.metrics = metrics_of(losses, batch, values),
                    .skipped = !check.all_finite && !optimizer_->takes_not_finite(),
                    .first_bad = check.first_bad,
                    .ruined = check.first_marked};
  result.metrics.merge(weights);
  result.metrics["weight_gradient_norm"] = {check.norm, 1, true};
  result.metrics["learning_rate"] = {static_cast<double>(rate), 1, true};
  if (result.skipped) ++skipped_;
  drop_gradients();
  ++step_;
  return result;
}

std::vector<StateArray> Trainer::state() {
  last_update_ = -1;
  std::vector<StateArray> arrays;
  for (const ParamInfo* info : parameters_.trained()) {
    std::vector<std::string> axes;
    for (const Axis& axis : info->spec.axes) axes.push_back(axis.name);
    MeshAxes mesh_axes;
    for (const MeshAxes& shard : info->value.layout().dims)
      mesh_axes.insert(mesh_axes.end(), shard.begin(), shard.end());
    arrays.push_back({"target/" + info->name, std::move(axes), info->value.local(),
                      &info->value.device(), std::move(mesh_axes)});
  }
  for (StateArray array : optimizer_->state()) {
    array.name = "state/param_states/" + array.name;
    arrays.push_back(std::move(array));
  }
  for (StateArray& array : fp8_.state()) arrays.push_back(std::move(array));
  return arrays;
}

std::string Trainer::first_ruined() const {
  const std::vector<const ParamInfo*> trained = parameters_.trained();
  std::vector<int32_t> marks(trained.size());
  device_.copy_out(marks.data(), marks_.view.pointer, std::ssize(marks) * size_of(DType::i32));
  const auto marked = std::ranges::find_if(marks, [](int32_t mark) { return mark != 0; });
  return marked == marks.end() ? "" : trained[static_cast<size_t>(marked - marks.begin())]->name;
}

void Trainer::restored(int64_t step, int64_t skipped) {
  const ContextScope in_context(context());
  step_ = step;
  skipped_ = skipped;
  marks_.device->fill(marks_.buffer.get(), 0, marks_.view.elements() * size_of(DType::i32));
  parameters_.refresh();
  fp8_.restored();
}

}  // namespace quintet
