#include "apps/plan/layout_step.h"

#include <algorithm>
#include <utility>

#include "runtime/abstract/abstract_device.h"
#include "runtime/base/clock.h"
#include "runtime/base/execution_context.h"
#include "runtime/optim/host_mirror.h"
#include "runtime/trainer/batch_rows.h"

namespace quintet {
namespace {

constexpr int64_t kWarmUpSteps = 2;

/// What an optimizer on the host moves over the link in an update (host_mirror.h).
struct HostLink {
  double beside = 0;  // bytes beside updates, of the direction that has more
  double alone = 0;   // of the first group, that comes, and of the last, that goes
  int64_t pinned_bytes = 0;

  HostLink(std::span<const ParamSlot> params, const HostMirrorOptions& options, bool apart) {
    const std::vector<MirrorGroup> groups = mirror_groups(params, options, apart);
    pinned_bytes = quintet::pinned_bytes(groups);
    double down = 0, up = 0;
    for (const MirrorGroup& group : groups) {
      double group_down = 0, group_up = 0;
      for (const ParamSlot& slot : params.subspan(group.begin, group.size())) {
        const bool has_master = options.masters_on_host && !slot.copy.absent();
        const auto elements = static_cast<double>(slot.param.elements());
        group_down +=
            elements * static_cast<double>(size_of(options.gradient_dtype) + (has_master ? 0 : 4));
        group_up += elements * (has_master ? 2 : 4);
      }
      (group.begin == 0 ? alone : down) += group_down;
      (group.end == params.size() ? alone : up) += group_up;
    }
    beside = std::max(down, up);
  }
};

/// Only the memory of an optimizer's state, the bytes that an update touches, and its sums over ranks.
/// `offload`: state and work are the host's (host_mirror.h). `multiprocessors`: of the GPU that updates; 0: it is none.
class AbstractOptimizer final : public Optimizer {
 public:
  AbstractOptimizer(OptimizerPtr optimizer, bool offload, DType gradient, int64_t multiprocessors)
      : optimizer_(std::move(optimizer)),
        offload_(offload),
        gradient_(gradient),
        multiprocessors_(multiprocessors) {}
  void init(std::span<const ParamSlot> params) override {
    const bool masters = ExecutionContext::current().sharding == nullptr;
    const MemoryMeter::Use use_meter(offload_ ? nullptr : ExecutionContext::current().meter);
    optimizer_->init(params);
    if (multiprocessors_ > 0) {
      const MemoryScope scope(MemoryKind::kOptimizer);
      kept_ = Device::current().memory().allocate(update_memory().kept);
    }
    for (const StateArray& array : optimizer_->state())
      bytes_ += 2.0 * static_cast<double>(array.view.elements() * size_of(array.view.dtype));
    for (const ParamSlot& slot : params)  // read gradient and parameter, write it and its copy
      bytes_ += static_cast<double>(slot.param.elements() *
                                    (size_of(gradient_) + (slot.copy.absent() ? 8 : 10)));
    if (offload_)
      link_.emplace(params, HostMirrorOptions{gradient_, masters}, optimizer_->updates_apart());
  }
  void update(const UpdateArgs& args, std::span<const ParamSlot> params) override {
    if (StepClock* clock = ExecutionContext::current().clock) {
      if (offload_)
        clock->host_work(bytes_, link_->beside, link_->alone);
      else
        clock->op("optimizer", {.bytes = bytes_});
    }
    if (multiprocessors_ > 0) {
      const MemoryScope scope(MemoryKind::kScratch);
      Device::current().memory().allocate(update_memory().scratch);
    }
    UpdateArgs simulated = args;
    simulated.simulates_gpu = multiprocessors_ > 0;
    optimizer_->simulate_sums(simulated, params);
  }
  std::vector<StateArray> state() override { return {}; }
  std::optional<double> example_clip() const override { return optimizer_->example_clip(); }
  /// Of the host.
  int64_t pinned_bytes() const { return link_ ? link_->pinned_bytes : 0; }

 private:
  UpdateMemory update_memory() const { return optimizer_->update_memory(multiprocessors_); }

  OptimizerPtr optimizer_;
  bool offload_;
  DType gradient_;
  int64_t multiprocessors_;
  Buffer kept_;
  double bytes_ = 0;
  std::optional<HostLink> link_;
};

/// The second of two steps: the first does not know yet which parameters to gather ahead.
void simulate(const LayoutCase& what, const TrainingLayout& layout, const SimulatedJob& job,
              StepClock& clock, LayoutRow& row) {
  AbstractDevice device(job.is_gpu);
  const Device::Use use_device(device);
  const auto comm = abstract_comm(0, job.hosts, device, job.cost);
  const Mesh mesh(layout.mesh(), comm.get());
  const Sharding sharding(mesh, layout.rules(), job.network_cost);
  const Sharding::Use use_sharding(sharding);
  MemoryMeter meter;
  const MemoryMeter::Use use_meter(meter);
  const StepClock::Use use_clock(clock);
  const Buffer workspace = [&] {
    const MemoryScope scope(MemoryKind::kScratch);
    return device.memory().allocate(job.workspace);
  }();
  const ModelAndOptimizer trained = what.make();
  if (offloads_masters(what.options)) trained.model->parameters().keep_masters_on_host();
  trained.model->parameters().allocate();
  trained.model->parameters().refresh();
  const TrainerOptions options = simulated_options(what, trained);
  const auto optimizer = std::make_shared<AbstractOptimizer>(
      trained.optimizer, options.optimizer_offload, options.gradient_dtype,
      job.is_gpu && !options.optimizer_offload ? job.multiprocessors : 0);
  Trainer trainer(loss_of(*trained.model), trained.model->parameters(), optimizer, options,
                  key_from_seed(1));
  for (int step = 0; step < 2; ++step) {
    HostArrays batch = local_rows(what.batch(step));
    meter.reset_peak();
    comm->traffic().reset();
    clock.reset();
    const DeviceCounts before = device.counters().read();
    trained.model->agree(&batch, options.num_microbatches, {});
    trainer.train(batch);
    row.counts = device.counters().read() - before;
  }
  row.memory = meter.peak();
  row.pinned_bytes = optimizer->pinned_bytes();
  row.traffic = comm->traffic().table();
}

struct StepTimes {
  double seconds = 0, exposed = 0, data = 0;
  double compute() const { return seconds - exposed - data; }
};

void run_on_ranks(const LayoutCase& what, Comm& comm, int64_t steps,
                  std::vector<StepProfile>* profiles, LayoutRow& row) {
  const Mesh mesh(row.layout.mesh(), &comm);
  const Sharding sharding(mesh, row.layout.rules());
  const Sharding::Use use_sharding(sharding);
  MemoryMeter meter;
  const MemoryMeter::Use use_meter(meter);
  const ModelAndOptimizer trained = what.make();
  trained.model->parameters().initialize(key_from_seed(0));
  TrainerOptions options = what.options;
  options.loss_is_total = true;
  Trainer trainer(loss_of(*trained.model), trained.model->parameters(), trained.optimizer, options,
                  key_from_seed(1));
  std::vector<StepTimes> times;
  for (int64_t step = 0; step < steps + kWarmUpSteps; ++step) {
    comm.world().barrier();
    meter.reset_peak();
    comm.traffic().reset();
    StepTimes now;
    const ContextMember<&ExecutionContext::waited> use_waited(now.exposed);
    StepProfile profile;
    const Profile::Use use_profile(profiles != nullptr ? &profile.ops
                                                       : ExecutionContext::current().profile);
    const auto start = Clock::now();
    HostArrays batch = local_rows(what.batch(step));
    now.data = seconds_since(start);
    const DeviceCounts before = comm.device().counters().read();
    trained.model->agree(&batch, 1, {});
    trainer.train(batch);
    now.seconds = seconds_since(start);
    row.counts = comm.device().counters().read() - before;
    row.messages = comm.traffic().messages();
    if (step < kWarmUpSteps) continue;
    times.push_back(now);
    profile.compute = now.compute();
    if (profiles != nullptr) profiles->push_back(std::move(profile));
  }
  row.memory = meter.peak();
  row.traffic = comm.traffic().table();
  std::sort(times.begin(), times.end(),
            [](const StepTimes& a, const StepTimes& b) { return a.seconds < b.seconds; });
  const StepTimes& median = times[times.size() / 2];
  row.seconds = median.seconds;
  row.exposed = median.exposed;
  row.data = median.data;
  row.compute = median.compute();
  row.tokens_per_second = static_cast<double>(what.tokens) / row.seconds;
}

int64_t microbatches_of(const LayoutCase& what, const ModelAndOptimizer& trained) {
  if (!trained.optimizer->example_clip()) return what.options.num_microbatches;
  const int64_t rows = local_rows(what.batch(0)).begin()->second.shape[0];
  const int64_t asked = what.options.num_microbatches;
  QT_CHECK(asked == 1 || asked == rows,
           "--microbatches={}: the optimizer clips the gradient of each example, which is a "
           "microbatch; leave it out",
           asked);
  trained.model->check_example_gradients(batch_part().count);
  return rows;
}

}  // namespace

TrainerOptions simulated_options(const LayoutCase& what, const ModelAndOptimizer& trained) {
  TrainerOptions options = what.options;
  options.loss_is_total = true;
  options.num_microbatches = microbatches_of(what, trained);
  return options;
}

LossFunction loss_of(const BaseModel& model) {
  return [&model](const HostArrays& features, int64_t begin, int64_t end, Key key) {
    return model.loss_fn(features, {begin, end}, {.train = true, .dropout_key = key});
  };
}

OptimizerPtr abstract_optimizer(OptimizerPtr optimizer, DType gradient_dtype) {
  return std::make_shared<AbstractOptimizer>(std::move(optimizer), false, gradient_dtype, 0);
}

LayoutRow measure_layout(const LayoutCase& what, const TrainingLayout& layout, Comm& comm,
                         int64_t steps, std::vector<StepProfile>* profiles) {
  LayoutRow row{.layout = layout};
  run_on_ranks(what, comm, steps, profiles, row);
  return row;
}

LayoutRow plan_layout(const LayoutCase& what, const TrainingLayout& layout, const SimulatedJob& job,
                      double model_flops) {
  LayoutRow row{.layout = layout};
  StepClock clock(job.machine);
  try {
    simulate(what, layout, job, clock, row);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kUsage) throw;
    row.refused = error.what();
    return row;
  }
  row.seconds = clock.seconds();
  row.compute = clock.compute();
  row.exposed = clock.exposed();
  row.tokens_per_second = static_cast<double>(what.tokens) / row.seconds;
  row.mfu = model_flops / row.seconds / job.machine.flops / static_cast<double>(layout.ranks());
  row.fits = job.memory_bytes == 0 || MemoryMeter::sum(row.memory) <= job.memory_bytes;
  return row;
}

std::map<std::string, StepClock::OpTotal, std::less<>> planned_ops(const LayoutCase& what,
                                                                   const TrainingLayout& layout) {
  StepClock clock({});
  LayoutRow row{.layout = layout};
  const std::vector<std::string> hosts(static_cast<size_t>(layout.ranks()), "abstract");
  simulate(what, layout, {.hosts = hosts, .machine = {}}, clock, row);
  return clock.ops();
}

double model_flops(const LayoutCase& what) {
  StepClock clock({});
  LayoutRow row{.layout = {}};
  simulate(what, row.layout, {.hosts = {"abstract"}, .machine = {}}, clock, row);
  return clock.flops();
}

}  // namespace quintet
