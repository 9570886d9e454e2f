// What `quintet plan` says a step holds, against what the emulated GPU's allocator counts while steps run.

#include "apps/plan/layout_step.h"
#include "apps/plan/model_case.h"
#include "kernels/simt/emulator/emulator.h"
#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/optim/optax/optax.h"
#include "tests/harness/device.h"

namespace quintet::testing {
namespace {

struct Config {
  std::string remat = "none";
  std::string dtype = "bfloat16";
  bool adafactor = false, offload = false, packed = false, experts = false;
  int64_t microbatches = 1, batch = 4, inputs = 48, targets = 24;
  DType gradients = DType::f32;
  bool fp8 = false;            // delayed scaling, fused casts
  std::string lora_base = {};  // adapters, beside kernels in this dtype
};

LayoutCase case_of(const Config& c) {
  T5Config config = published_model_config("t5_1_1_tiny", c.dtype);
  config.vocab_size = 512;
  config.emb_dim = 128;
  config.num_heads = 4;
  config.head_dim = 32;
  config.mlp_dim = 384;
  config.num_encoder_layers = config.num_decoder_layers = 2;
  config.remat_policy = c.remat;
  if (c.experts)
    for (SparseStack* stack : {&config.encoder.sparse, &config.decoder.sparse})
      *stack = {.num_sparse_layers = 1,
                .moe = {.num_experts = 4, .mlp_dim = 384, .activations = {"gelu", "linear"}}};
  ModelCase sizes{.batch = c.batch, .inputs = c.inputs, .targets = c.targets, .fp8 = c.fp8};
  if (!c.lora_base.empty()) sizes.lora = {.rank = 8, .config = {.base_dtype = c.lora_base}};
  LayoutCase what = layout_case(config, sizes);
  what.make = [make = what.make, c] {
    ModelAndOptimizer made = make();
    if (c.adafactor)
      made.optimizer = adafactor({.logical_factor_rules = standard_logical_factor_rules()});
    return made;
  };
  if (c.packed)
    what.batch = [batch = what.batch](int64_t step) {
      HostArrays packed = batch(step);
      for (const auto& [ids, of] : {std::pair{"encoder", "encoder_input_tokens"},
                                    std::pair{"decoder", "decoder_target_tokens"}}) {
        const std::vector<int64_t> shape = packed.at(of).shape;
        for (const std::string part : {"_segment_ids", "_positions"}) {
          HostArray& array = packed[ids + part] = HostArray(DType::i32, shape);
          for (int64_t i = 0; i < shape[0] * shape[1]; ++i)
            array.as<int32_t>()[static_cast<size_t>(i)] =
                part[1] == 's' ? 1 + static_cast<int32_t>(i % shape[1] >= shape[1] / 2)
                               : static_cast<int32_t>(i % (shape[1] / 2));
        }
      }
      return packed;
    };
  what.options = {.num_microbatches = c.microbatches,
                  .gradient_dtype = c.gradients,
                  .learning_rate = [](int64_t) { return 0.01f; },
                  .step_graph = false,
                  .optimizer_offload = c.offload};
  return what;
}

/// While one lives, nothing that is queued runs: what is allocated does not depend on numbers.
class QueueOnly {
 public:
  QueueOnly() : before_(emulated::simt::emulator::set_recorder([](const auto&) {})) {}
  ~QueueOnly() { emulated::simt::emulator::set_recorder(std::move(before_)); }
  QueueOnly(const QueueOnly&) = delete;
  QueueOnly& operator=(const QueueOnly&) = delete;

 private:
  std::function<void(emulated::simt::emulator::Work)> before_;
};

/// Of the device's memory in a step that is like those after it: the second, with a graph the third.
int64_t measured(const LayoutCase& what, MemoryMeter::Kinds* kinds = nullptr) {
  Memory& memory = Device::current().memory();
  memory.release_cached();
  const int64_t before = memory.used_bytes();
  Device::current().synchronize();
  MemoryMeter meter;
  const MemoryMeter::Use use_meter(meter);
  const QueueOnly queue_only;
  const ModelAndOptimizer trained = what.make();
  trained.model->parameters().initialize(key_from_seed(0));
  Trainer trainer(loss_of(*trained.model), trained.model->parameters(), trained.optimizer,
                  what.options, key_from_seed(1));
  for (int64_t step = 0; step < 3; ++step) {
    memory.reset_peak();
    meter.reset_peak();
    HostArrays batch = what.batch(step);
    trained.model->agree(&batch, what.options.num_microbatches, {});
    trainer.train(batch);
  }
  EXPECT_EQ(trainer.launched_graph(), what.options.step_graph);
  if (kinds != nullptr) *kinds = meter.peak();
  return memory.peak_bytes() - before;
}

class PlannedMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Device::current().is_cpu()) GTEST_SKIP() << "needs a GPU, emulated or real";
  }
};

TEST_F(PlannedMemory, IsWhatTheAllocatorCounts) {
  const std::pair<const char*, Config> configs[] = {
      {"adamw", {.packed = true}},
      {"float32 minimal", {.remat = "minimal", .dtype = "float32"}},
      {"adafactor rounded full",
       {.remat = "full", .adafactor = true, .microbatches = 2, .gradients = DType::bf16}},
      {"offload rounded", {.offload = true, .gradients = DType::bf16}},
      {"long adafactor", {.adafactor = true, .batch = 2, .inputs = 256, .targets = 64}},
      {"experts", {.experts = true}},
      {"experts rounded remat",
       {.remat = "full", .experts = true, .microbatches = 2, .gradients = DType::bf16}},
      {"fp8", {.fp8 = true}},
      {"fp8 remat", {.remat = "full", .microbatches = 2, .fp8 = true}},
      {"long fp8", {.batch = 2, .inputs = 256, .targets = 64, .fp8 = true}},
      {"adapters", {.lora_base = "float32"}},
      {"adapters on bfloat16", {.remat = "minimal", .lora_base = "bfloat16"}},
      {"adapters on int8", {.lora_base = "int8"}},
  };
#ifdef __SANITIZE_ADDRESS__
  const std::vector<bool> with_graph{false};  // blocks of a recording are apart for it
#else
  const std::vector<bool> with_graph{false, true};
#endif
  for (const bool graph : with_graph)
    for (const auto& [name, config] : configs) {
      SCOPED_TRACE(name);
      LayoutCase what = case_of(config);
      what.options.step_graph = graph;
      const LayoutRow planned =
          plan_layout(what, {}, {.hosts = {"abstract"}, .machine = {}, .is_gpu = true}, 1);
      ASSERT_EQ(planned.refused, "");
      const auto plan = static_cast<double>(MemoryMeter::sum(planned.memory));
      const auto bytes = static_cast<double>(measured(what));
      fmt::print("{:24} {:8} planned {:10.0f} measured {:10.0f} {:+.1f} %\n", name,
                 graph ? "graph" : "", plan, bytes, 100 * (plan / bytes - 1));
      EXPECT_NEAR(plan, bytes, 0.02 * bytes);  // kernels' scratch is 4 % of the long one
    }
}

// Of a batch so small that its update is where a step holds most.
TEST_F(PlannedMemory, HasWhatAdafactorTakesBesideItsState) {
  const LayoutCase what = case_of({.adafactor = true, .batch = 1, .inputs = 4, .targets = 4});
  // With windows smaller than the largest matrix, as the emulator's are.
  constexpr int64_t kMultiprocessors = 2;
  const MemoryMeter::Kinds planned = plan_layout(what, {},
                                                 {.hosts = {"abstract"},
                                                  .machine = {},
                                                  .is_gpu = true,
                                                  .multiprocessors = kMultiprocessors},
                                                 1)
                                         .memory;
  MemoryMeter::Kinds counted;
  measured(what, &counted);
  const auto scratch = static_cast<size_t>(MemoryKind::kScratch);
  const auto optimizer = static_cast<size_t>(MemoryKind::kOptimizer);
  EXPECT_GT(planned[scratch], 0);
  EXPECT_EQ(planned[scratch], counted[scratch]);
  EXPECT_EQ(planned[optimizer], counted[optimizer]);
}

}  // namespace
}  // namespace quintet::testing
