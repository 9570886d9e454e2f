// Training steps that are recorded once and repeated: the same bits as steps that are not. On the
// emulated GPU recordings keep the arguments of their launches as a CUDA graph does, and lose what was
// in their memory, so that a number of the step that was left in an argument shows.

#include <cstring>
#include <limits>
#include <set>

#include "kernels/gpu/gpu_kernels.h"
#include "kernels/step_keys.h"
#include "models/base_model.h"
#include "models/decoding/gpu/repeated_work.h"
#include "runtime/base/memory/memory_meter.h"
#include "runtime/base/memory/out_of_memory.h"
#include "runtime/execution/tape.h"
#include "runtime/ops/ops.h"
#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/optim/multi_optimizer.h"
#include "runtime/optim/optax/optax.h"
#include "runtime/profile/profile.h"
#include "runtime/trainer/trainer.h"
#include "tests/harness/device.h"

namespace quintet::testing {
namespace {

template <class Config>
void set_up(Config& config, const std::string& dtype) {
  config.vocab_size = 48;
  config.emb_dim = 32;
  config.num_heads = 2;
  config.head_dim = 16;
  config.mlp_dim = 40;
  config.mlp_activations = {"gelu", "linear"};
  config.dropout_rate = 0.2;
  config.dtype = dtype;
}

std::unique_ptr<BaseModel> encoder_decoder(const std::string& dtype, bool has_experts = false) {
  T5Config config;
  set_up(config, dtype);
  config.num_encoder_layers = config.num_decoder_layers = 1;
  if (has_experts)
    for (SparseStack* stack : {&config.encoder.sparse, &config.decoder.sparse})
      *stack = {.num_sparse_layers = 1,
                .moe = {.num_experts = 4,
                        .mlp_dim = 40,
                        .activations = {"gelu", "linear"},
                        .dropout_rate = 0.2,
                        .router = {.jitter_noise = 0.1}}};
  return std::make_unique<EncoderDecoderModel>(
      config,
      LossOptions{.z_loss = 1e-3,
                  .loss_normalizing_factor = SpecialLossNormalizingFactor::kAveragePerSequence,
                  .aux_loss_factor = 0.01,
                  .router_z_loss_factor = 0.001});
}

std::unique_ptr<BaseModel> prefix_lm(const std::string& dtype) {
  TransformerConfig config;
  set_up(config, dtype);
  config.num_layers = 2;
  return std::make_unique<DecoderOnlyModel>(
      config,
      LossOptions{.loss_normalizing_factor = SpecialLossNormalizingFactor::kNumRealTargetTokens},
      true);
}

/// Packed rows of other tokens, segments and padding for each `number`; odd ones are not packed.
HostArrays batch_of(int64_t rows, int64_t length, uint32_t number, bool packed) {
  HostArrays batch;
  const auto fill = [&](const std::string& name, const auto& value) {
    HostArray& array = batch[name] = HostArray(DType::i32, {rows, length});
    for (int64_t i = 0; i < rows * length; ++i)
      array.as<int32_t>()[static_cast<size_t>(i)] = value(i / length, i % length);
  };
  const auto drawn = [&](uint32_t seed, int64_t row, int64_t at) {
    return random_bits(fold_in(key_from_seed(seed), number),
                       static_cast<uint64_t>(row * length + at));
  };
  const auto is_padding = [&](int64_t row, int64_t at) {
    return at >= length - drawn(4, row, 0) % 4;
  };
  uint32_t seed = 0;
  for (const char* name :
       {"encoder_input_tokens", "decoder_target_tokens", "decoder_input_tokens"}) {
    ++seed;
    fill(name, [&](int64_t row, int64_t at) {
      return is_padding(row, at) ? 0 : 2 + static_cast<int32_t>(drawn(seed, row, at) % 46);
    });
  }
  fill("decoder_causal_attention", [&](int64_t row, int64_t at) {
    return at < 3 + drawn(5, row, 0) % 3 && !is_padding(row, at);
  });
  if (packed)
    for (const char* name : {"encoder_segment_ids", "decoder_segment_ids"})
      fill(name, [&](int64_t row, int64_t at) {
        return is_padding(row, at) ? 0 : 1 + (at >= 2 + static_cast<int64_t>(drawn(6, row, 0) % 6));
      });
  return batch;
}

class StepGraphs : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Device::current().is_cpu()) GTEST_SKIP() << "needs a GPU, emulated or real";
  }
};

struct Run {
  std::vector<Metrics> metrics;
  HostArrays parameters;
  std::vector<bool> launched;
};

using Make = std::function<std::unique_ptr<BaseModel>()>;

Run train(const Make& make, const OptimizerPtr& optimizer, const std::vector<HostArrays>& batches,
          TrainerOptions options) {
  const std::unique_ptr<BaseModel> model = make();
  model->parameters().initialize(key_from_seed(3));
  options.learning_rate = [](int64_t step) { return 0.01f / static_cast<float>(step + 1); };
  Trainer trainer(
      [&, t5x_dropout = options.t5x_dropout](const HostArrays& batch, int64_t begin, int64_t end,
                                             Key key) {
        return model->loss_fn(batch, {begin, end},
                              {.train = true, .dropout_key = key, .t5x_dropout = t5x_dropout});
      },
      model->parameters(), optimizer, std::move(options), key_from_seed(1));
  Run run;
  for (const HostArrays& batch : batches) {
    run.metrics.push_back(trainer.train(batch).metrics);
    run.launched.push_back(trainer.launched_graph());
  }
  for (const ParamInfo& info : model->parameters().all())
    run.parameters[info.name] = info.value.to_host();
  return run;
}

/// Trains with and without recordings; returns which steps were launches.
std::vector<bool> expect_same(const Make& make, const std::function<OptimizerPtr()>& optimizer,
                              const std::vector<HostArrays>& batches, int64_t microbatches = 1,
                              bool t5x_dropout = false) {
  const TrainerOptions options{
      .num_microbatches = microbatches, .t5x_dropout = t5x_dropout, .learning_rate = {}};
  TrainerOptions unrecorded = options;
  unrecorded.step_graph = false;
  const Run plain = train(make, optimizer(), batches, unrecorded);
  const Run run = train(make, optimizer(), batches, options);
  EXPECT_EQ(plain.launched, std::vector<bool>(batches.size()));
  for (size_t step = 0; step < batches.size(); ++step) {
    EXPECT_EQ(run.metrics[step].size(), plain.metrics[step].size());
    for (const auto& [name, metric] : plain.metrics[step]) {
      const Metric& got = run.metrics[step].at(name);
      EXPECT_EQ(got.total, metric.total) << name << " of step " << step;
      EXPECT_EQ(got.count, metric.count) << name << " of step " << step;
    }
  }
  for (const auto& [name, want] : plain.parameters)
    EXPECT_EQ(run.parameters.at(name).bytes, want.bytes) << name;
  return run.launched;
}

std::vector<HostArrays> batches_like(const std::vector<int64_t>& lengths, bool packed,
                                     int64_t rows = 4) {
  std::vector<HostArrays> batches;
  for (const int64_t length : lengths)
    batches.push_back(batch_of(rows, length, static_cast<uint32_t>(batches.size()), packed));
  return batches;
}

TEST_F(StepGraphs, GiveTheBitsOfStepsThatAreNotRecorded) {
  for (const char* dtype : {"float32", "bfloat16"})
    EXPECT_EQ(expect_same([&] { return encoder_decoder(dtype); }, [] { return adafactor(); },
                          batches_like({12, 12, 12, 12}, true), 2),
              (std::vector<bool>{false, true, true, true}));
}

TEST_F(StepGraphs, OfDecodersAndOfChainsThatNoKernelFuses) {
  expect_same([] { return prefix_lm("bfloat16"); }, [] { return optax_optimizer(adamw(3e-3)); },
              batches_like({10, 10, 10}, true));
  expect_same([] { return prefix_lm("float32"); },
              [] {
                return optax_optimizer(chain({scale(0.5), adam(3e-3)}));
              },
              batches_like({10, 10, 10}, false));
}

/// Notes how often the host had waited for the device when an update was queued.
class WaitsBefore final : public Optimizer {
 public:
  WaitsBefore(OptimizerPtr inner, std::vector<int64_t>& waits)
      : inner_(std::move(inner)), waits_(waits) {}
  void init(std::span<const ParamSlot> params) override { inner_->init(params); }
  void update(const UpdateArgs& args, std::span<const ParamSlot> params) override {
    waits_.push_back(Device::current().counters().read().host_waits);
    inner_->update(args, params);
    waits_.push_back(Device::current().counters().read().host_waits);
  }
  void take_back() override { inner_->take_back(); }
  std::vector<StateArray> state() override { return inner_->state(); }

 private:
  OptimizerPtr inner_;
  std::vector<int64_t>& waits_;
};

TEST_F(StepGraphs, AStepIsQueuedBeforeTheHostWaits) {
  const auto optimizers = {
      optax_optimizer(chain({clip_by_global_norm(0.1), adamw(1e-3)})),
      optax_optimizer(chain({scale(0.5), clip_by_global_norm(0.1), lion(1e-3)})),
      adafactor({.min_dim_size_to_factor = 8, .global_norm_clip_threshold = 1.0})};
  for (const OptimizerPtr& optimizer : optimizers)
    for (const int64_t microbatches : {1, 2}) {
      std::vector<int64_t> waits;
      const auto model = encoder_decoder("bfloat16");
      model->parameters().initialize(key_from_seed(3));
      Trainer trainer(
          [&](const HostArrays& batch, int64_t begin, int64_t end, Key key) {
            return model->loss_fn(batch, {begin, end}, {.train = true, .dropout_key = key});
          },
          model->parameters(), std::make_shared<WaitsBefore>(optimizer, waits),
          {.num_microbatches = microbatches,
           .learning_rate = [](int64_t) { return 0.01f; },
           .step_graph = false},
          key_from_seed(1));
      for (uint32_t step = 0; step < 3; ++step) {
        const HostArrays batch = batch_of(4, 12, step, true);
        waits.assign(1, Device::current().counters().read().host_waits);
        trainer.train(batch);
        EXPECT_EQ(waits, std::vector<int64_t>(3, waits[0])) << "step " << step;
        // For the losses of all microbatches and the check of the gradients.
        EXPECT_EQ(Device::current().counters().read().host_waits, waits[0] + 1);
      }
    }
}

/// Values of parameters and optimizer state.
HostArrays state_of(Trainer& trainer) {
  HostArrays all;
  for (const StateArray& array : trainer.state()) all[array.name] = host_copy(array);
  return all;
}

// A parameter that is NaN makes all gradients so: the device itself leaves the update out.
TEST_F(StepGraphs, AnUpdateThatTheDeviceSkipsChangesNothing) {
  const auto make = {
      +[] {
        return optax_optimizer(chain({clip_by_global_norm(0.1), adamw(1e-3)}));
      },
      +[] {
        return optax_optimizer(chain({scale(0.5), trace(0.9), clip_by_global_norm(1), adam(1e-3)}));
      },
      +[] { return adafactor({.beta1 = 0.9, .min_dim_size_to_factor = 8}); },
      +[] {
        return multi_optimizer(
            {{matching(".*kernel.*"),
              optax_optimizer(chain({clip_by_global_norm(0.1), sgd(0.1, {.momentum = 0.9})}))},
             {matching(".*(scale|embedding).*"), optax_optimizer(lion(1e-3))}});
      }};
  const auto expect_skipped = [](const OptimizerPtr& optimizer, bool offload) {
    const auto model = encoder_decoder("float32");
    model->parameters().initialize(key_from_seed(3));
    Trainer trainer(
        [&](const HostArrays& batch, int64_t begin, int64_t end, Key key) {
          return model->loss_fn(batch, {begin, end}, {.train = true, .dropout_key = key});
        },
        model->parameters(), optimizer,
        {.learning_rate = [](int64_t) { return 0.01f; }, .optimizer_offload = offload},
        key_from_seed(1));
    const HostArrays batch = batch_of(4, 12, 0, true);
    trainer.train(batch);
    const View scale = model->parameters().all().front().value.local();
    const float good = model->parameters().all().front().value.to_host().as<float>()[0];
    const float nan = std::numeric_limits<float>::quiet_NaN();
    Device::current().copy_in(scale.pointer, &nan, sizeof nan);
    model->parameters().refresh();
    const HostArrays before = state_of(trainer);
    const StepResult skipped = trainer.train(batch);
    EXPECT_TRUE(skipped.skipped);
    EXPECT_FALSE(skipped.first_bad.empty());
    EXPECT_EQ(trainer.skipped_updates(), 1);
    for (const auto& [name, array] : state_of(trainer))
      EXPECT_EQ(array.bytes, before.at(name).bytes) << name;
    Device::current().copy_in(scale.pointer, &good, sizeof good);
    model->parameters().refresh();
    EXPECT_FALSE(trainer.train(batch).skipped);
  };
  for (const auto& optimizer : make)
    for (const bool offload : {false, true}) expect_skipped(optimizer(), offload);
}

/// Notes what an optimizer is told of others that write parameters, and may tell it that they always do.
class TellsOfWrites final : public Optimizer {
 public:
  TellsOfWrites(OptimizerPtr optimizer, bool always)
      : optimizer_(std::move(optimizer)), always_(always) {}
  void init(std::span<const ParamSlot> params) override { optimizer_->init(params); }
  void update(const UpdateArgs& args, std::span<const ParamSlot> params) override {
    written.push_back(!args.params_unwritten);
    UpdateArgs told = args;
    if (always_) told.params_unwritten = false;
    optimizer_->update(told, params);
  }
  std::vector<StateArray> state() override { return optimizer_->state(); }
  std::vector<bool> written;

 private:
  OptimizerPtr optimizer_;
  bool always_;
};

// Adafactor keeps sums of parameters from update to update.
TEST_F(StepGraphs, AnOptimizerIsToldWhoeverElseWritesParameters) {
  const auto train = [&](bool always) {
    const auto model = encoder_decoder("float32");
    Parameters& parameters = model->parameters();
    parameters.initialize(key_from_seed(3));
    const auto optimizer =
        std::make_shared<TellsOfWrites>(adafactor({.min_dim_size_to_factor = 8}), always);
    const auto loss = [&](const HostArrays& batch, int64_t begin, int64_t end, Key key) {
      return model->loss_fn(batch, {begin, end}, {.train = true, .dropout_key = key});
    };
    const TrainerOptions options{.learning_rate = [](int64_t) { return 0.01f; }};
    Trainer trainer(loss, parameters, optimizer, options, key_from_seed(1));
    const HostArrays batch = batch_of(4, 12, 0, true);
    const auto two_steps = [&] { trainer.train(batch), trainer.train(batch); };
    const auto write_views = [&](float factor) {
      for (const StateArray& array : trainer.state()) {
        HostArray copy = host_copy(array);
        for (float& value : copy.as<float>()) value *= factor;
        array.device->copy_in(array.view.pointer, copy.bytes.data(),
                              static_cast<int64_t>(copy.bytes.size()));
      }
    };
    two_steps();
    write_views(2);
    trainer.restored(2, 0);
    two_steps();
    state_of(trainer);  // as a checkpoint does, which writes nothing
    two_steps();
    write_views(0.5f);  // and says nothing
    two_steps();
    const ParamInfo& first = parameters.all().front();
    HostArray values = first.value.to_host();
    for (float& value : values.as<float>()) value *= 3;
    first.value.set(values);
    parameters.refresh();
    two_steps();
    Trainer(loss, parameters, adafactor(), options, key_from_seed(1)).train(batch);
    two_steps();
    EXPECT_EQ(optimizer->written, (std::vector<bool>{1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0}));
    return state_of(trainer);
  };
  const HostArrays kept = train(false);
  for (const auto& [name, want] : train(true)) EXPECT_EQ(kept.at(name).bytes, want.bytes) << name;
}

// What the host does in place of the device is the same to rounding.
TEST_F(StepGraphs, AnOffloadedOptimizerTrainsAlike) {
  const auto optimizer = [] {
    return optax_optimizer(chain({clip_by_global_norm(0.1), adamw(1e-2)}));
  };
  for (const char* dtype : {"float32", "bfloat16"}) {
    const auto make = [&] { return encoder_decoder(dtype); };
    const std::vector<HostArrays> batches = batches_like({12, 12, 12}, true);
    const auto on_device = train(make, optimizer(), batches, {.learning_rate = {}});
    const auto on_host =
        train(make, optimizer(), batches, {.learning_rate = {}, .optimizer_offload = true});
    EXPECT_EQ(on_host.launched, (std::vector<bool>{false, true, true}));
    const auto unrecorded =
        train(make, optimizer(), batches,
              {.learning_rate = {}, .step_graph = false, .optimizer_offload = true});
    for (const auto& [name, want] : unrecorded.parameters)
      EXPECT_EQ(on_host.parameters.at(name).bytes, want.bytes) << name;
    for (size_t step = 0; step < batches.size(); ++step)
      EXPECT_NEAR(on_host.metrics[step].at("loss").value(),
                  on_device.metrics[step].at("loss").value(), 1e-3)
          << dtype << " " << step;
    for (const auto& [name, want] : on_device.parameters)
      for (size_t i = 0; i < want.as<float>().size(); ++i)
        ASSERT_NEAR(on_host.parameters.at(name).as<float>()[i], want.as<float>()[i], 1e-5) << name;
  }
}

// Copies of masters on the device are those of the masters for whoever reads them behind a step.
TEST_F(StepGraphs, AnOffloadedUpdateHasArrivedForWhatFollowsIt) {
  const auto model = encoder_decoder("bfloat16");
  model->parameters().initialize(key_from_seed(3));
  Trainer trainer(
      [&](const HostArrays& batch, int64_t begin, int64_t end, Key key) {
        return model->loss_fn(batch, {begin, end}, {.train = true, .dropout_key = key});
      },
      model->parameters(), optax_optimizer(adamw(1e-2)),
      {.learning_rate = [](int64_t) { return 0.01f; }, .optimizer_offload = true},
      key_from_seed(1));
  for (uint32_t step = 0; step < 3; ++step) {
    trainer.train(batch_of(4, 12, step, true));
    for (const ParamInfo& info : model->parameters().all()) {
      if (!info.compute) continue;
      std::vector<bfloat16> want, got(static_cast<size_t>(info.spec.elements()));
      const HostArray masters = info.value.to_host();
      for (const float master : masters.as<float>()) want.emplace_back(master);
      Device::current().copy_out(got.data(), info.compute.raw(), info.compute.bytes());
      EXPECT_EQ(std::memcmp(got.data(), want.data(), 2 * want.size()), 0) << info.name << step;
    }
  }
}

TEST_F(StepGraphs, OfExpertsWithJitter) {
  expect_same([] { return encoder_decoder("bfloat16", true); },
              [] { return optax_optimizer(adamw(3e-3)); }, batches_like({12, 12, 12}, false));
}

TEST_F(StepGraphs, OfExpertsWithTheDropoutOfT5x) {
  EXPECT_EQ(expect_same([] { return encoder_decoder("float32", true); },
                        [] { return optax_optimizer(adamw(3e-3)); },
                        batches_like({12, 12, 12}, false), 1, true),
            (std::vector<bool>{false, true, true}));
}

TEST_F(StepGraphs, AreRecordedAgainWhenShapesChange) {
  EXPECT_EQ(expect_same([] { return encoder_decoder("float32"); },
                        [] { return optax_optimizer(sgd(0.1)); },
                        batches_like({12, 12, 9, 12, 12, 12}, false)),
            (std::vector<bool>{false, true, false, false, true, true}));
  std::vector<HostArrays> batches = batches_like({12, 12, 12, 12}, true);
  for (size_t i : {1, 2})
    batches[i].erase("decoder_segment_ids"), batches[i].erase("encoder_segment_ids");
  EXPECT_EQ(expect_same([] { return encoder_decoder("float32"); },
                        [] { return optax_optimizer(sgd(0.1)); }, batches),
            (std::vector<bool>{false, false, true, false}));
}

TEST_F(StepGraphs, AreRecordedAgainWhenParametersMove) {
  const auto model = encoder_decoder("float32");
  model->parameters().initialize(key_from_seed(3));
  StepGraph graph(
      model->parameters(),
      [&](const HostArrays& batch, Key key, const std::function<void(const LossOutput&)>& done) {
        const Tape::Recording paused(nullptr);
        done(model->loss_fn(batch, Rows::all(batch), {.train = true, .dropout_key = key}));
      },
      true);
  const HostArrays batch = batch_of(4, 12, 0, false);
  const auto run = [&] {
    return metrics_of(graph.run(batch, key_from_seed(5)).front(), batch).at("loss").total;
  };
  const double loss = run();
  EXPECT_EQ(run(), loss);
  EXPECT_TRUE(graph.launched());
  graph.forget();
  EXPECT_EQ(run(), loss);
  EXPECT_TRUE(graph.launched());
  model->parameters().initialize(key_from_seed(4));  // elsewhere
  const double other = run();
  EXPECT_NE(other, loss);
  EXPECT_EQ(run(), other);
}

// What a recording would leave as it was is refused, and the step run each time.
TEST_F(StepGraphs, RefuseWhatTheyWouldNotReadAnew) {
  const auto run = [](const std::function<void(const HostArrays&, Key)>& work) {
    Parameters none;
    StepGraph graph(
        none, [&](const HostArrays& batch, Key key, const auto&) { work(batch, key); }, true);
    const HostArrays batch = batch_of(1, 8, 0, false);
    ::testing::internal::CaptureStderr();
    for (int step = 0; step < 3; ++step) graph.run(batch, key_from_seed(step));
    EXPECT_FALSE(graph.launched());
    return ::testing::internal::GetCapturedStderr();
  };
  const Tensor x =
      Tensor::zeros({{{axis::kBatch, 4}, {axis::kLength, 2}, {axis::kEmbed, 8}}, DType::f32});
  EXPECT_EQ(
      run([&](const HostArrays&, Key key) {
        ops::dropout(x, {0.5, fold_in(key, 7)});
      }),
      "steps are not recorded as a graph: a random key that does not follow from the step's\n");
  EXPECT_EQ(run([&](const HostArrays& batch, Key) {
              Tensor::from_host(batch.at("encoder_input_tokens"), {axis::kBatch, axis::kLength});
            }),
            "steps are not recorded as a graph: a copy of ordinary memory cannot be recorded\n");
  EXPECT_EQ(run([&](const HostArrays&, Key) { x.to_host(); }),
            "steps are not recorded as a graph: a wait for the device cannot be recorded\n");
  EXPECT_EQ(run([&](const HostArrays&, Key key) {
              for (uint32_t place = 0; place <= 4096; ++place) StepKeys::child(key, place);
            }),
            "steps are not recorded as a graph: more random keys than fit\n");
}

// What was attached to the parameters while recording is no gradient: it was never computed.
TEST_F(StepGraphs, LeaveNoGradientsWhenTheyAreRefused) {
  const auto gradient = [](bool may_record) {
    const auto model = encoder_decoder("float32");
    model->parameters().initialize(key_from_seed(3));
    StepGraph graph(
        model->parameters(),
        [&](const HostArrays& batch, Key key, const std::function<void(const LossOutput&)>&) {
          Tape tape;
          Tensor loss;
          {
            const Tape::Recording recording(tape);
            loss =
                model->loss_fn(batch, Rows::all(batch), {.train = true, .dropout_key = key}).loss;
          }
          tape.backward(loss);
          loss.to_host();
        },
        may_record);
    const ParamInfo& first = *model->parameters().all().begin();
    for (uint32_t step = 0; step < 2; ++step) {
      for (const ParamInfo& info : model->parameters().all()) info.used().set_grad({});
      graph.run(batch_of(4, 12, step, false), key_from_seed(step));
    }
    EXPECT_FALSE(graph.launched());
    return first.used().grad().to_host().bytes;
  };
  ::testing::internal::CaptureStderr();
  const auto refused = gradient(true);
  EXPECT_NE(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(refused, gradient(false));
}

/// While it lives the device's memory is what the pool has cached already, where it refuses.
class ScarceMemory final : public MemorySource {
 public:
  explicit ScarceMemory(Memory& memory) : memory_(memory) {
    memory.change_source([this](MemorySource& before) {
      before_ = &before;
      return this;
    });
  }
  ~ScarceMemory() override {
    memory_.change_source([this](MemorySource&) { return before_; });
  }
  void* allocate(int64_t bytes) override {
    if (!refuses(bytes)) return before_->allocate(bytes);
    ++refused;
    return nullptr;
  }
  void release(void* pointer, int64_t bytes) override { before_->release(pointer, bytes); }
  std::string name() const override { return "a scarce memory"; }
  std::function<bool(int64_t bytes)> refuses = [](int64_t) { return false; };
  int refused = 0;

 private:
  Memory& memory_;
  MemorySource* before_ = nullptr;
};

/// Activations of one size and scratch of five. The first time one activation is not taken, and a later one twice.
struct UnlikeTheFirst {
  int times = 0;
  void operator()() {
    constexpr int64_t kBytes = 64 << 10, kLayers = 24;
    Memory& memory = Device::current().memory();
    const int time = ++times;
    std::vector<Buffer> held;
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      if (time > 1 || layer != 2) held.push_back(memory.allocate(kBytes));
      if (time == 1 && layer == 12) held.push_back(memory.allocate(kBytes));
      memory.allocate((1 + layer % 5) * kBytes);
    }
    for (; !held.empty(); held.pop_back()) memory.allocate(kBytes * (1 + std::ssize(held) % 3));
  }
};

/// What a recording of `work` holds, of the most that it and its keys, in pinned memory, need at once; 0: it was not
/// recorded.
double held_by_recording(UnlikeTheFirst& work) {
  Parameters none;
  StepGraph graph(
      none, [&](const HostArrays&, Key, const auto&) { work(); }, true);
  const Memory& memory = Device::current().memory();
  const int64_t before = memory.used_bytes();
  MemoryMeter meter;
  const MemoryMeter::Use use(meter);
  for (int step = 0; step < 3; ++step) graph.run(batch_of(1, 8, 0, false), key_from_seed(1));
  const int64_t bytes = memory.used_bytes() - before;
  EXPECT_EQ(graph.launched(), bytes > 0);
  return static_cast<double>(bytes) / static_cast<double>(MemoryMeter::sum(meter.peak()));
}

TEST_F(StepGraphs, HavePlacesForWhatTheyTakeAndNotForWhatTheFirstStepTook) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "nothing is placed for AddressSanitizer";
#endif
  UnlikeTheFirst work;
  const double held = held_by_recording(work);
  EXPECT_GE(held, 0.9);
  EXPECT_LE(held, 1.1);
  EXPECT_EQ(work.times, 3);
}

TEST_F(StepGraphs, WhosePlacesFindNoRoomHaveAPool) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "nothing is placed for AddressSanitizer";
#endif
  ScarceMemory source(Device::current().memory());
  source.refuses = [](int64_t bytes) { return bytes > 1 << 20; };
  UnlikeTheFirst work;
  EXPECT_GE(held_by_recording(work), 0.9);
  EXPECT_EQ(source.refused, 2) << "places of the first step, of the recording";
  EXPECT_EQ(work.times, 3);
}

TEST_F(StepGraphs, WhoseBlocksBesideTheirPlacesFindNoRoomArePlacedAnew) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "nothing is placed for AddressSanitizer";
#endif
  ScarceMemory source(Device::current().memory());
  UnlikeTheFirst work;
  source.refuses = [&](int64_t) { return work.times == 2; };
  const double held = held_by_recording(work);
  EXPECT_GE(held, 0.9);
  EXPECT_LE(held, 1.1);
  EXPECT_EQ(source.refused, 1);
  EXPECT_EQ(work.times, 4);
}

TEST_F(StepGraphs, HaveAnotherFirstStepAfterOneThatThrew) {
  Parameters none;
  int calls = 0;
  StepGraph graph(
      none,
      [&](const HostArrays&, Key, const auto&) {
        if (++calls == 3) throw OutOfMemory("a longer batch");
        Device::current().memory().allocate(1000);
      },
      true);
  const auto launches = [&](int64_t length) {
    graph.run(batch_of(1, length, 0, false), {});
    return graph.launched();
  };
  EXPECT_FALSE(launches(8));
  EXPECT_TRUE(launches(8));
  EXPECT_THROW(launches(12), OutOfMemory);
  EXPECT_FALSE(launches(12));
  EXPECT_TRUE(launches(12));
}

TEST_F(StepGraphs, AreNotMadeWhereTheirOwnBlocksFindNoMemory) {
  ScarceMemory scarce(Device::current().memory());
  int calls = 0;
  std::set<int> recorded_calls{2, 3};  // with places, without
  scarce.refuses = [&](int64_t) { return recorded_calls.contains(calls); };
  // A call's block is larger than those before, which are cached.
  const auto work = [&] {
    ++calls;
    ops::scale(Tensor::zeros({{{axis::kEmbed, int64_t{1000} << calls}}, DType::f32}), 2);
  };
  const auto said = [&](const auto& run) {
    ::testing::internal::CaptureStderr();
    for (int time = 0; time < 4; ++time) run();
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string lack =
      "not recorded as a graph: out of memory on a scarce memory while work is recorded: ";
  Parameters none;
  StepGraph graph(
      none, [&](const HostArrays&, Key, const auto&) { work(); }, true);
  const HostArrays batch = batch_of(1, 8, 0, false);
  EXPECT_TRUE(said([&] { graph.run(batch, {}); }).starts_with("steps are " + lack));
  EXPECT_FALSE(graph.launched());
  EXPECT_EQ(calls, 6);

  recorded_calls = {calls + 3};
  decoding::RepeatedWork step;
  const std::string of_generation = said([&] { step.run(Group(), work); });
  EXPECT_TRUE(of_generation.starts_with("steps of generation are " + lack)) << of_generation;
  EXPECT_EQ(calls, 11);
}

TEST_F(StepGraphs, EndWithAFaultOfTheirWorkThatIsNoLackOfMemory) {
  decoding::RepeatedWork step;
  int calls = 0;
  const auto work = [&] {
    if (++calls == 3) fail(ExitCode::kEnvironment, "the device is gone");
  };
  step.run(Group(), work);
  EXPECT_THROW(step.run(Group(), work), Error) << "as it is recorded";
}

TEST_F(StepGraphs, AreNotLaunchedWhileSomebodyLooksAtEachOp) {
  const Tensor x = Tensor::zeros({{{axis::kEmbed, 8}}, DType::f32});
  Parameters none;
  StepGraph graph(
      none, [&](const HostArrays&, Key, const auto&) { ops::scale(x, 2); }, true);
  const HostArrays batch = batch_of(1, 8, 0, false);
  graph.run(batch, {});
  Profile profile;
  std::optional<Profile::Use> use(std::in_place, profile);
  for (int step = 0; step < 3; ++step) graph.run(batch, {});
  use.reset();
  EXPECT_FALSE(graph.launched());
  EXPECT_EQ(profile.entries().at("scale").calls, 3);
  graph.run(batch, {});
  EXPECT_TRUE(graph.launched());
}

// The stand-in keeps what a CUDA graph keeps, and loses what it may lose.
TEST_F(StepGraphs, KeepTheArgumentsOfTheirLaunches) {
  Device& device = Device::current();
  Tensor kept = Tensor::zeros({{{axis::kEmbed, 4}}, DType::f32}), sum = Tensor::zeros(kept.spec());
  float value = 1;
  const auto recording = device.record([&] {
    device.kernels().fill(kept.local(), value, device.stream());
    device.kernels().accumulate(sum.local(), kept.local(), device.stream());
  });
  value = 2;
  EXPECT_EQ(kept.to_host().as<float>()[0], 0);  // recording runs nothing
  for (int time = 0; time < 3; ++time) recording->launch();
  EXPECT_EQ(kept.to_host().as<float>()[0], 1);
  EXPECT_EQ(sum.to_host().as<float>()[3], 3);
}

TEST_F(StepGraphs, HaveMemoryThatNobodyElseGets) {
  Device& device = Device::current();
  const Spec spec{{{axis::kEmbed, 5000}}, DType::f32};
  const int64_t used = device.memory().used_bytes();
  Tensor result;
  {
    const auto recording = device.record([&] {
      for (int i = 0; i < 5; ++i) {  // each goes back before the next
        const Tensor passing(spec);
        device.kernels().fill(passing.local(), 7, device.stream());
        result = i == 4 ? passing : Tensor();
      }
    });
    const int64_t taken = device.memory().used_bytes() - used;
    EXPECT_LT(taken, 2 * result.bytes());
    Tensors others;
    for (int i = 0; i < 5; ++i) others.push_back(Tensor::zeros(spec));
    recording->launch();
    for (const Tensor& other : others) EXPECT_EQ(other.to_host().as<float>()[0], 0);
    EXPECT_EQ(result.to_host().as<float>()[4999], 7);
  }
  result = {};
  EXPECT_EQ(device.memory().used_bytes(), used);
}

}  // namespace
}  // namespace quintet::testing
