// `quintet bench train`: seconds of a training step, and what its plan says it holds beside what it held.

#include <nlohmann/json.hpp>

#include "apps/bench/bench.h"
#include "apps/bench/bench_models.h"
#include "kernels/simt/host/product_workspace.h"
#include "runtime/base/process/messages.h"
#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/optim/schedules.h"
#include "runtime/trainer/trainer.h"

namespace quintet {

namespace {

constexpr double kRate = 1e-3;

LayoutCase case_of(const BenchOptions& options) {
  T5Config config = published_model_config(options.model, options.dtype);
  config.dropout_rate = options.dropout;
  config.remat_policy = options.remat;
  LayoutCase what = layout_case(config, options);
  if (options.optimizer == "adafactor")
    what.make = [make = what.make] { return ModelAndOptimizer{make().model, adafactor()}; };
  if (!options.examples.empty())
    what.batch = [batch = packed_batch(options, config.vocab_size)](int64_t) { return batch; };
  what.options = options.microbatches.options(1);
  what.options.loss_is_total = true;
  what.options.learning_rate = constant_schedule(kRate);
  what.options.optimizer_offload = options.optimizer_offload && !Device::current().is_cpu();
  if (options.optimizer_offload && !what.options.optimizer_offload)
    print_warning("--optimizer_offload has no effect: the device is cpu");
  return what;
}

/// Most that a step on this device holds at once. Throws a usage error where it cannot run.
int64_t planned_bytes(const LayoutCase& what) {
  const Device& device = Device::current();
  SimulatedJob job;
  job.hosts = {"abstract"};
  job.is_gpu = !device.is_cpu();
  if (device.kind() == "cuda") job.workspace = kProductWorkspace;
  const LayoutRow planned = plan_layout(what, {}, job, 1);
  QT_CHECK(planned.refused.empty(), "bench train: {}", planned.refused);
  return MemoryMeter::sum(planned.memory);
}

/// As Parameters::initialize, but of an array only the first 2^20 numbers are drawn and then repeated: a CPU takes minutes
/// for the 11 billion of XXL. Bytes and scales of matrices in 8 bits are all alike.
void initialize_repeated(Parameters& parameters) {
  constexpr int64_t kDrawn = 1 << 20;
  parameters.allocate();
  for (ParamInfo& info : parameters.all()) {
    Device& device = info.value.device();
    std::byte* const to = info.value.raw();
    const DType dtype = info.spec.dtype;
    if (info.scales) device.fill(info.scales.raw(), 0x3c, info.scales.bytes());  // 0.011 each
    if (size_of(dtype) == 1) {
      device.fill(to, 1, info.value.bytes());
      continue;
    }
    std::vector<float> drawn(static_cast<size_t>(std::min(kDrawn, info.spec.elements())));
    info.initializer.block(key_of_parameter(key_from_seed(0), info.name), info.value.block().sizes,
                           0, drawn);
    const std::vector<bfloat16> rounded(drawn.begin(), drawn.end());
    int64_t done = std::ssize(drawn) * size_of(dtype);
    device.copy_in(
        to, dtype == DType::bf16 ? static_cast<const void*>(rounded.data()) : drawn.data(), done);
    device.synchronize();  // both go
    for (int64_t more = 0; done < info.value.bytes(); done += more) {
      more = std::min(done, info.value.bytes() - done);
      device.copy(to + done, to, more);
    }
  }
  parameters.refresh();
}

}  // namespace

int run_bench_train(std::span<char* const> args) {
  BenchOptions options;
  if (!parse_bench_options("train", "Times training steps of a T5 1.1.", args, false, options))
    return 0;
  const LayoutCase what = case_of(options);
  HostArrays batch = what.batch(0);
  options.batch = batch.at("decoder_target_tokens").shape[0];
  QT_CHECK(options.batch % what.options.num_microbatches == 0,
           "bench train: --microbatches={} does not divide the {} rows of a batch; choose another "
           "number of either",
           what.options.num_microbatches, options.batch);
  const int64_t planned = planned_bytes(what);
  const ModelAndOptimizer trained = what.make();
  Parameters& parameters = trained.model->parameters();
  if (offloads_masters(what.options)) parameters.keep_masters_on_host();
  initialize_repeated(parameters);
  trained.model->agree(&batch, what.options.num_microbatches, {});
  Trainer trainer(loss_of(*trained.model), parameters, trained.optimizer, what.options,
                  key_from_seed(1));
  time_steps(
      "train", options, options.batch * (options.inputs + options.targets),
      [&] { trainer.train(batch); },
      {.before = {}, .facts = [&](double) {
         const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
         return std::pair(nlohmann::ordered_json{{"planned_bytes", planned}}.dump(),
                          fmt::format("planned {:.2f} GiB, held at most {:.2f} GiB\n", gib(planned),
                                      gib(Device::current().memory().peak_bytes())));
       }});
  return 0;
}

}  // namespace quintet
