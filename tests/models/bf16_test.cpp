// Computing in bfloat16 on a GPU: near the float32 run, masters in float32, training goes down.
// On the CPU, which computes in float32 whatever the dtype says, there is nothing to test.

#include "models/base_model.h"
#include "runtime/execution/tape.h"
#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/optim/optax/optax.h"
#include "runtime/trainer/trainer.h"
#include "tests/harness/device.h"
#include "tests/harness/fixtures.h"

namespace quintet::testing {
namespace {

T5Config config_of(const std::string& dtype, bool has_experts = false) {
  T5Config config;
  config.vocab_size = 96;
  config.emb_dim = 64;
  config.num_heads = 2;
  config.head_dim = 64;  // the tensor-core kernels' size
  config.mlp_dim = 96;
  config.mlp_activations = {"gelu", "linear"};
  config.num_encoder_layers = config.num_decoder_layers = 1;
  config.dropout_rate = 0.1;
  config.dtype = dtype;
  if (has_experts)
    for (SparseStack* stack : {&config.encoder.sparse, &config.decoder.sparse})
      *stack = {.num_sparse_layers = 1,
                .moe = {.num_experts = 4, .mlp_dim = 96, .activations = {"gelu", "linear"}}};
  return config;
}

HostArrays batch_of(int64_t rows, int64_t inputs, int64_t targets) {
  HostArrays batch;
  uint32_t state = 1;
  for (const auto& [name, length] : {std::pair("encoder_input_tokens", inputs),
                                     {"decoder_target_tokens", targets},
                                     {"decoder_input_tokens", targets}}) {
    HostArray& array = batch[name] = HostArray(DType::i32, {rows, length});
    for (int32_t& token : array.as<int32_t>()) {
      state = state * 1664525u + 1013904223u;
      token = 2 + static_cast<int32_t>((state >> 8) % 90);
    }
  }
  return batch;
}

class Bf16 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Device::current().is_cpu()) GTEST_SKIP() << "needs a GPU, emulated or real";
  }
};

/// Loss and gradients of one batch, in `dtype`, from the same parameters.
std::pair<double, HostArrays> loss_and_gradients(const std::string& dtype,
                                                 bool has_experts = false) {
  LossOptions options;
  options.z_loss = 1e-4;
  EncoderDecoderModel model(config_of(dtype, has_experts), options);
  model.parameters().initialize(key_from_seed(3));
  Tape tape;
  Tensor loss;
  {
    Tape::Recording recording(tape);
    loss =
        model.loss_fn(batch_of(3, 37, 21), {0, 3}, {.train = true, .dropout_key = key_from_seed(5)})
            .loss;
  }
  tape.backward(loss);
  HostArrays gradients;
  for (const ParamInfo& info : model.parameters().all())
    gradients[info.name] = info.used().grad().to_host();
  return {loss.item(), gradients};
}

TEST_F(Bf16, LossAndGradientsAreNearThoseOfFloat32) {
  const auto [loss, gradients] = loss_and_gradients("float32");
  const auto [rounded_loss, rounded] = loss_and_gradients("bfloat16");
  EXPECT_NE(loss, rounded_loss);
  EXPECT_NEAR(rounded_loss, loss, 0.01 * loss);
  for (const auto& [name, want] : gradients) {
    const HostArray& got = rounded.at(name);
    ASSERT_EQ(got.dtype, DType::f32) << name;  // gradients go to float32 masters
    double error = 0, norm = 0;
    for (size_t i = 0; i < want.as<float>().size(); ++i) {
      const double w = static_cast<double>(want.as<float>()[i]);
      error += std::pow(static_cast<double>(got.as<float>()[i]) - w, 2);
      norm += w * w;
    }
    // Each of the some ten roundings on a gradient's way costs about 2^-9 of it.
    EXPECT_LE(std::sqrt(error), 0.06 * std::sqrt(norm)) << name;
  }
}

// A token whose experts are close may go elsewhere after rounding, and its gradients with it.
TEST_F(Bf16, LossOfExpertsIsNearThatOfFloat32) {
  const auto [loss, gradients] = loss_and_gradients("float32", true);
  const auto [rounded_loss, rounded] = loss_and_gradients("bfloat16", true);
  EXPECT_NE(loss, rounded_loss);
  EXPECT_NEAR(rounded_loss, loss, 0.01 * loss);
}

void expect_training(const OptimizerPtr& optimizer, bool has_experts) {
  EncoderDecoderModel model(config_of("bfloat16", has_experts), {});
  model.parameters().initialize(key_from_seed(3));
  Trainer trainer(
      [&](const HostArrays& batch, int64_t begin, int64_t end, Key key) {
        return model.loss_fn(batch, {begin, end}, {.train = true, .dropout_key = key});
      },
      model.parameters(), optimizer, {.learning_rate = [](int64_t) { return 0.03f; }},
      key_from_seed(1));
  const HostArrays batch = batch_of(2, 16, 12);
  std::vector<double> losses;
  for (int step = 0; step < 6; ++step)
    losses.push_back(trainer.train(batch).metrics.at("loss").total);
  EXPECT_LT(losses.back(), 0.8 * losses.front());
  for (const ParamInfo& info : model.parameters().all()) {
    EXPECT_EQ(info.value.spec().dtype, DType::f32) << info.name;
    if (!info.compute) continue;
    const HostArray copy = info.compute.to_host(), master = info.value.to_host();
    for (size_t i = 0; i < master.as<float>().size(); ++i)
      ASSERT_EQ(copy.as<bfloat16>()[i].bits, bfloat16(master.as<float>()[i]).bits) << info.name;
  }
}

TEST_F(Bf16, TrainsWithAdamWAndAdafactor) {
  for (const OptimizerPtr& optimizer : {optax_optimizer(adamw(3e-3)), adafactor()})
    expect_training(optimizer, false);
}

TEST_F(Bf16, TrainsExperts) { expect_training(optax_optimizer(adamw(3e-3)), true); }

}  // namespace
}  // namespace quintet::testing
