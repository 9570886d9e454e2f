// A model trained with gradients that are kept in bfloat16: what rounding makes of a run, what memory it takes, and what
// is refused.

#include <cmath>
#include <cstring>

#include "kernels/random/random.h"
#include "models/base_model.h"
#include "runtime/base/memory/memory_meter.h"
#include "runtime/execution/gradient_buckets.h"
#include "runtime/optim/optax/noise.h"
#include "runtime/trainer/trainer.h"
#include "tests/harness/device.h"

namespace quintet::testing {
namespace {

HostArrays batch_of(int64_t rows, int64_t length) {
  HostArrays batch;
  for (const char* name :
       {"encoder_input_tokens", "decoder_target_tokens", "decoder_input_tokens"}) {
    HostArray& array = batch[name] = HostArray(DType::i32, {rows, length});
    for (int64_t i = 0; i < rows * length; ++i)
      array.as<int32_t>()[static_cast<size_t>(i)] =
          2 +
          static_cast<int32_t>(random_bits(key_from_seed(name[8]), static_cast<uint64_t>(i)) % 48);
  }
  return batch;
}

/// What gradients hold when an update begins; then the update.
class Watched final : public Optimizer {
 public:
  Watched(OptimizerPtr optimizer, const MemoryMeter& meter, int64_t& bytes)
      : optimizer_(std::move(optimizer)), meter_(meter), bytes_(bytes) {}
  void init(std::span<const ParamSlot> params) override { optimizer_->init(params); }
  void update(const UpdateArgs& args, std::span<const ParamSlot> params) override {
    bytes_ = meter_.used()[static_cast<size_t>(MemoryKind::kGradients)];
    optimizer_->update(args, params);
  }
  std::vector<StateArray> state() override { return optimizer_->state(); }

 private:
  OptimizerPtr optimizer_;
  const MemoryMeter& meter_;
  int64_t& bytes_;
};

struct Trained {
  int64_t parameters = 0, largest = 0;  // numbers
  int64_t gradient_bytes = 0, peak = 0;
  std::map<std::string, std::vector<float>> before, after;
};

struct Case {
  std::string remat = "none";
  int64_t microbatches = 1;
  bool offload = false;
  TransformationPtr rule = sgd(1.0);
};

Trained run(const Case& what, DType dtype, int64_t steps = 1) {
  T5Config config;
  config.vocab_size = 50;
  config.emb_dim = 32;
  config.num_heads = 2;
  config.head_dim = 16;
  config.mlp_dim = 512;
  config.mlp_activations = {"gelu", "linear"};
  config.num_encoder_layers = config.num_decoder_layers = 2;
  config.dropout_rate = 0.1;
  config.remat_policy = what.remat;
  MemoryMeter meter;
  const MemoryMeter::Use use(meter);
  EncoderDecoderModel model(config, {});
  model.parameters().initialize(key_from_seed(7));
  Trained run;
  Trainer trainer(
      [&](const HostArrays& batch, int64_t begin, int64_t end, Key key) {
        return model.loss_fn(batch, {begin, end}, {.train = true, .dropout_key = key});
      },
      model.parameters(),
      std::make_shared<Watched>(optax_optimizer(what.rule), meter, run.gradient_bytes),
      {.num_microbatches = what.microbatches,
       .gradient_dtype = dtype,
       .learning_rate = {},
       .step_graph = false,
       .optimizer_offload = what.offload},
      key_from_seed(9));
  const auto values = [&](auto& to) {
    for (const ParamInfo& info : model.parameters().all()) {
      const HostArray array = info.value.to_host();
      to[info.name] = {array.as<float>().begin(), array.as<float>().end()};
    }
  };
  values(run.before);
  for (int64_t step = 0; step < steps; ++step) {
    meter.reset_peak();
    EXPECT_FALSE(trainer.train(batch_of(4, 4)).skipped);
  }
  run.peak = MemoryMeter::sum(meter.peak());
  values(run.after);
  run.parameters = model.parameters().elements();
  for (const ParamInfo& info : model.parameters().all())
    run.largest = std::max(run.largest, info.value.local().elements());
  return run;
}

/// Of an array, the norm of what the run added to it, and of the difference to what the other run did.
std::pair<double, double> moved(const Trained& want, const Trained& got, const std::string& name) {
  double squares = 0, differences = 0;
  const auto &a = want.after.at(name), &b = got.after.at(name), &before = want.before.at(name);
  for (size_t i = 0; i < a.size(); ++i) {
    squares += std::pow(static_cast<double>(a[i]) - before[i], 2);
    differences += std::pow(static_cast<double>(a[i]) - b[i], 2);
  }
  return {std::sqrt(squares), std::sqrt(differences)};
}

class KeptGradients : public ::testing::Test {};

// Stochastic gradient descent at rate 1 shows the gradient. A result that is added to one is rounded by 2^-8 of the sum at
// most: one for each microbatch, three for the embedding, whose parts may be larger than their sum.
TEST_F(KeptGradients, AreThoseOfFloat32ToRounding) {
  for (const Case& what : {Case{}, Case{.remat = "minimal", .microbatches = 4},
                           Case{.remat = "full", .microbatches = 2}}) {
    SCOPED_TRACE(what.remat);
    const Trained want = run(what, DType::f32), got = run(what, DType::bf16);
    double differs = 0;
    for (const auto& [name, values] : want.after) {
      const auto [norm, difference] = moved(want, got, name);
      const double roundings = static_cast<double>(what.microbatches) * 3;
      EXPECT_LE(difference, roundings * norm / 256) << name;
      differs += difference;
    }
    EXPECT_GT(differs, 0);
  }
}

TEST_F(KeptGradients, TakeTwoBytesANumberLess) {
  for (const Case& what : {Case{}, Case{.remat = "full", .microbatches = 2}}) {
    const Trained floats = run(what, DType::f32), rounded = run(what, DType::bf16);
    EXPECT_EQ(floats.gradient_bytes, 4 * floats.parameters);
    EXPECT_EQ(rounded.gradient_bytes, 2 * floats.parameters);
    // The gradients of one op, of an MLP three, are float32 before they are stored.
    EXPECT_LE(rounded.peak, floats.peak - 2 * floats.parameters + 3 * 4 * floats.largest);
  }
}

TEST_F(KeptGradients, OnTheHostAreThoseOfTheDevice) {
  const Case what{.rule = adamw(1e-2)};
  Case offloaded = what;
  offloaded.offload = true;
  const Trained want = run(what, DType::bf16), got = run(offloaded, DType::bf16);
  for (const auto& [name, values] : want.after)
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(got.after.at(name)[i], values[i], 1e-6) << name;
}

TEST_F(KeptGradients, OfAStepThatIsRepeatedAreTheSame) {
  EXPECT_EQ(run({.microbatches = 2}, DType::bf16, 2).after,
            run({.microbatches = 2}, DType::bf16, 2).after);
}

TEST_F(KeptGradients, AreRefusedWhereSumsStayFloat32) {
  T5Config config;
  config.vocab_size = 50;
  config.emb_dim = config.mlp_dim = 8;
  config.num_heads = config.num_encoder_layers = config.num_decoder_layers = 1;
  config.head_dim = 8;
  EncoderDecoderModel model(config, {});
  model.parameters().initialize(key_from_seed(7));
  const auto message = [&](TrainerOptions options, const TransformationPtr& rule) -> std::string {
    options.gradient_dtype = DType::bf16;
    try {
      Trainer({}, model.parameters(), optax_optimizer(rule), options, key_from_seed(9));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({.learning_rate = {}}, sgd(0.1)), "");
  EXPECT_NE(message({.reduction = GradientReduction::step, .learning_rate = {}}, sgd(0.1))
                .find("--gradient_dtype=bfloat16, --reduce_gradients=step"),
            std::string::npos);
  EXPECT_NE(message({.learning_rate = {}},
                    chain({differentially_private_aggregate({.l2_norm_clip = 1}), sgd(0.1)}))
                .find("clips the gradient of each example"),
            std::string::npos);
}

// A leaf's gradient after each of several results is the float32 sum rounded to nearest even.
TEST_F(KeptGradients, RoundEachSumOnce) {
  const int64_t n = 1003;
  const Tensor leaf(Spec{{{"mlp", n}}, DType::f32});
  std::vector<bfloat16> sum(static_cast<size_t>(n));
  for (uint32_t part = 0; part < 5; ++part) {
    std::vector<float> values(static_cast<size_t>(n));
    fill_normal(key_from_seed(part), 0, values, 1.0f);
    const Tensor grad(Spec{{{"mlp", n}}, DType::f32});
    Device::current().copy_in(grad.local().pointer, values.data(), 4 * n);
    GradientBuckets buckets(1, ParameterLayers::none(), {.stored = DType::bf16});
    buckets.add(leaf, grad, 0);
    buckets.finish();
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] = bfloat16((part == 0 ? 0.0f : static_cast<float>(sum[i])) + values[i]);
    std::vector<bfloat16> got(sum.size());
    ASSERT_EQ(leaf.grad().spec().dtype, DType::bf16);
    Device::current().copy_out(got.data(), leaf.grad().local().pointer, 2 * n);
    EXPECT_EQ(std::memcmp(got.data(), sum.data(), 2 * sum.size()), 0) << part;
  }
}

}  // namespace
}  // namespace quintet::testing
