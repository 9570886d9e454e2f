// Training in FP8: near the run without, the same from a checkpoint on, and no trace of a step that was skipped.

#include "models/fp8.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "runtime/execution/tape.h"
#include "runtime/ops/ops.h"
#include "runtime/optim/optax/optax.h"
#include "runtime/profile/profile.h"
#include "runtime/trainer/trainer.h"
#include "tests/harness/device.h"

namespace quintet::testing {
namespace {

T5Config config_of(const std::string& remat) {
  T5Config config;
  config.vocab_size = 64;
  config.emb_dim = 32;
  config.num_heads = 2;
  config.head_dim = 16;
  config.mlp_dim = 48;
  config.mlp_activations = {"gelu", "linear"};
  config.num_encoder_layers = config.num_decoder_layers = 1;
  config.dropout_rate = 0.1;
  config.remat_policy = remat;
  if (!Device::current().is_cpu()) config.dtype = "bfloat16";
  return config;
}

HostArrays batch_of(int64_t step) {
  HostArrays batch;
  auto state = static_cast<uint32_t>(step);
  for (const auto& [name, length] : {std::pair{"encoder_input_tokens", 12},
                                     {"decoder_input_tokens", 8},
                                     {"decoder_target_tokens", 8}}) {
    HostArray& array = batch[name] = HostArray(DType::i32, {4, length});
    for (int32_t& token : array.as<int32_t>()) {
      state = state * 1664525u + 1013904223u;
      token = 3 + static_cast<int32_t>((state >> 20) % 20);
    }
  }
  return batch;
}

const TransformerEngineConfig kFp8{.enabled = true, .amax_history_len = 4};

/// A model, its trainer, and steps on batches by number.
struct Training {
  EncoderDecoderModel model;
  bool spoils = false;  // the next loss is not finite
  std::unique_ptr<Trainer> trainer;

  explicit Training(const TransformerEngineConfig& fp8, const std::string& remat = "none",
                    TrainerOptions options = {}, std::optional<T5Config> config = {})
      : model(config ? *config : config_of(remat), LossOptions{}) {
    options.fp8 = use_fp8(model, fp8);
    options.learning_rate = constant_schedule(1e-2F);
    model.parameters().initialize(key_from_seed(0));
    trainer = std::make_unique<Trainer>(
        [this](const HostArrays& batch, int64_t begin, int64_t end, Key key) {
          LossOutput out = model.loss_fn(batch, {begin, end}, {.train = true, .dropout_key = key});
          if (spoils) out.loss = ops::scale(out.loss, std::numeric_limits<double>::infinity());
          return out;
        },
        model.parameters(), optax_optimizer(adamw(1e-2)), std::move(options), key_from_seed(1));
  }
  StepResult step() { return trainer->train(batch_of(trainer->step())); }
  /// Losses of the next steps.
  std::vector<double> losses(int count) {
    std::vector<double> all;
    for (int i = 0; i < count; ++i) all.push_back(step().metrics.at("loss").value());
    return all;
  }
  HostArrays state(std::string_view prefix = "") {
    HostArrays arrays;
    for (const StateArray& array : trainer->state())
      if (array.name.starts_with(prefix)) arrays[array.name] = host_copy(array);
    return arrays;
  }
  void restore(const HostArrays& from, int64_t step, int64_t skipped = 0) {
    for (const StateArray& array : trainer->state()) {
      const HostArray& values = from.at(array.name);
      array.device->copy_in(array.view.pointer, values.bytes.data(), std::ssize(values.bytes));
    }
    trainer->restored(step, skipped);
  }
};

void expect_equal(const HostArrays& got, const HostArrays& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, array] : want) EXPECT_EQ(got.at(name).bytes, array.bytes) << name;
}

TEST(Fp8Training, EveryDenseLayerHasScalesThatItsOperandsSet) {
  Training run(kFp8);
  run.step();
  const HostArrays metas = run.state(kFp8Prefix);
  // query, out, wi_0 and wo of a layer; in cross-attention key too.
  ASSERT_EQ(metas.size(), 2u * (4 + 4 + 3));
  for (const auto& [name, array] : metas) {
    const bool is_scale = name.ends_with("/scale");
    for (size_t i = 0; i < 3; ++i) {
      const float value =
          array.as<float>()[is_scale ? i : i * 4 + 3];  // the last place of a history
      EXPECT_GT(value, 0) << name << " " << i;
      EXPECT_FALSE(is_scale && value == 1) << name << " " << i;
    }
  }
  EXPECT_TRUE(metas.contains(
      "flax_mutables/fp8_metas/decoder/layers_0/encoder_decoder_attention/key/scale"));
}

TEST(Fp8Training, LearnsAsWithoutIt) {
  TransformerEngineConfig current = kFp8, e4m3 = kFp8;
  current.scaling = "current";
  e4m3.fp8_format = "e4m3";
  // Single losses of a model this small differ by a percent.
  const auto halves = [](const TransformerEngineConfig& fp8) {
    const std::vector<double> losses = Training(fp8).losses(100);
    EXPECT_LT(losses.back(), 0.9 * losses.front());
    return std::pair{std::accumulate(losses.begin(), losses.begin() + 50, 0.0) / 50,
                     std::accumulate(losses.begin() + 50, losses.end(), 0.0) / 50};
  };
  const auto [first, last] = halves({});
  for (const TransformerEngineConfig& fp8 : {kFp8, current, e4m3}) {
    SCOPED_TRACE(fp8.scaling + fp8.fp8_format);
    const auto [fp8_first, fp8_last] = halves(fp8);
    fmt::print(
        "{} {}: mean loss of steps 1 to 50 {:.4f}, without {:.4f} ({:+.2f} %), of 51 to 100 "
        "{:.4f}, "
        "without {:.4f} ({:+.2f} %)\n",
        fp8.scaling, fp8.fp8_format, fp8_first, first, 100 * (fp8_first / first - 1), fp8_last,
        last, 100 * (fp8_last / last - 1));
    EXPECT_NE(fp8_last, last);
    EXPECT_NEAR(fp8_first, first, 5e-3 * first);
    EXPECT_NEAR(fp8_last, last, 5e-3 * last);
  }
}

TEST(Fp8Training, GoesOnFromItsStateAsIfItHadNotStopped) {
  Training whole(kFp8);
  whole.losses(3);
  const HostArrays saved = whole.state();
  const std::vector<double> want = whole.losses(3);
  Training resumed(kFp8);
  resumed.restore(saved, 3);
  EXPECT_EQ(resumed.losses(3), want);
  expect_equal(resumed.state(), whole.state());
}

/// With the casts fused and apart: the same bits of all that training leaves.
TEST(Fp8Training, FusedCastsChangeNoBit) {
  TransformerEngineConfig apart = kFp8;
  apart.fused_casts = false;
  // Microbatches of 24 and 16 rows instead of 48 and 32: of some layers alone.
  for (const auto& [remat, parts] : {std::pair{"none", int64_t{1}}, {"minimal", 2}, {"full", 1}}) {
    SCOPED_TRACE(fmt::format("{}, {} microbatches", remat, parts));
    TrainerOptions options;
    options.num_microbatches = parts;
    T5Config config = config_of(remat);
    config.dropout_rate = parts == 1 ? 0 : 0.1;  // with dropout the gate's cast stays apart
    Training one(kFp8, remat, options, config), other(apart, remat, options, config);
    EXPECT_EQ(one.losses(4), other.losses(4));
    expect_equal(one.state(), other.state());
  }
}

/// Of a step of T5 1.1 small's layers, narrower. A cast forward and one backward less for each norm that FP8 layers read, two
/// of an encoder's layer and three of a decoder's, for each gate and for each weight, whose casts are one.
TEST(Fp8Training, FusedCastsTakeFewerLaunchesAndBytes) {
  if (Device::current().is_cpu()) GTEST_SKIP() << "a CPU launches nothing";
  struct Counted {
    int64_t launches, bytes = 0;
  };
  const auto counted = [](bool fused) {
    TransformerEngineConfig fp8 = kFp8;
    fp8.fused_casts = fused;
    T5Config config = config_of("none");
    config.num_encoder_layers = config.num_decoder_layers = 8;
    config.dropout_rate = 0;
    TrainerOptions options;
    options.step_graph = false;
    Training run(fp8, "none", options, config);
    run.step();
    Profile profile;
    const Profile::Use use(&profile);
    const int64_t before = Device::current().counters().read().launches;
    run.step();
    Counted all{Device::current().counters().read().launches - before};
    for (const auto& [name, entry] : profile.entries()) all.bytes += entry.bytes;
    return all;
  };
  const Counted apart = counted(false), fused = counted(true);
  EXPECT_EQ(apart.launches - fused.launches, 8 * 2 * (3 + 7) + 8 * 2 * (4 + 11) - 1)
      << apart.launches << " and " << fused.launches;
  // Of a number between norm or gate and products 8 bytes become 2, of a weight 6 become 4. An op's operands count whole: each
  // that leaves bytes has the scales of all 4 x 8 + 7 x 8 groups of layers.
  const int64_t x = 8 * (48 * (2 * 32 + 48) + 32 * (3 * 32 + 48)),
                w = 8 * ((4 + 8) * 32 * 32 + (3 + 3) * 32 * 48),
                scales = 8 * (3 + 4) * (8 * (4 + 7) * static_cast<int64_t>(sizeof(Fp8Scaling)));
  EXPECT_EQ(apart.bytes - fused.bytes, 6 * x + 2 * w - scales)
      << apart.bytes << " and " << fused.bytes;
}

TEST(Fp8Training, FusedCastsKeepTheTransposeAlone) {
  const auto filled = [](const std::vector<int64_t>& sizes, const std::vector<std::string>& axes) {
    HostArray array(DType::f32, sizes);
    std::ranges::fill(array.as<float>(), 1.0F);
    return Tensor::from_host(array, axes);
  };
  Tensor x = filled({16, 32}, {"batch", "embed"});
  x.set_needs_grad(true);
  const Tensor gain = filled({32}, {"embed"}), w = filled({32, 16}, {"embed", "mlp"});
  const ops::Fp8Scales scales{filled({1, kFp8ScalingFloats}, {"fp8_layers", "fp8_scaling"})};
  for (const bool trains : {true, false}) {
    Tape tape;
    const Tape::Recording recording(trains ? &tape : nullptr);
    const DenseInput bytes = ops::rms_norm_fp8(x, gain, scales);
    EXPECT_EQ(bytes.x.bytes(), 16 * 32);
    EXPECT_EQ(bytes.transposed.absent(), !trains);
    ops::matmul_fp8(bytes, {w}, {}, scales, Float8::e5m2);
    EXPECT_EQ(bytes.x.raw(), nullptr);
    if (trains) {
      EXPECT_NE(bytes.transposed.raw(), nullptr);
    }
  }
}

TEST(Fp8Training, ASkippedStepLeavesNoTrace) {
  TrainerOptions options;
  options.step_graph = false;  // a recorded step could not be spoiled
  Training run(kFp8, "none", options);
  run.losses(2);
  const HostArrays before = run.state();
  run.spoils = true;
  EXPECT_TRUE(run.step().skipped);
  expect_equal(run.state(), before);
  // Neither does one whose gradients are only looked at: the next is as if it had not been.
  run.spoils = false;
  run.trainer->first_bad_gradient(batch_of(9));
  run.step();
  Training other(kFp8);
  other.restore(before, 3, 1);
  other.step();
  expect_equal(run.state(), other.state());
}

TEST(Fp8Training, MicrobatchesShareTheScalesOfAStep) {
  TrainerOptions options;
  options.num_microbatches = 2;
  Training whole(kFp8), parts(kFp8, "none", options), remat(kFp8, "full"), minimal(kFp8, "minimal");
  whole.step();
  for (Training* run : {&parts, &remat, &minimal}) {
    run->step();
    const HostArrays want = whole.state(kFp8Prefix), got = run->state(kFp8Prefix);
    for (const auto& [name, array] : want)
      for (size_t i = 0; i < array.as<float>().size(); ++i) {
        const float expected = array.as<float>()[i];
        EXPECT_NEAR(got.at(name).as<float>()[i], expected, 2e-2F * expected) << name << " " << i;
      }
  }
}

TEST(Fp8Training, EvaluationIsWithoutIt) {
  Training run(kFp8);
  run.losses(2);
  const HostArrays before = run.state(), batch = batch_of(5);
  const double loss = run.model.eval_fn(batch).at("loss").value();
  Training plain({});
  for (ParamInfo& info : plain.model.parameters().all())
    info.value.set(run.model.parameters().at(info.name).value.to_host());
  plain.model.parameters().refresh();
  EXPECT_EQ(plain.model.eval_fn(batch).at("loss").value(), loss);
  run.step();
  Training other(kFp8);
  other.restore(before, 2);
  other.step();
  expect_equal(run.state(), other.state());
}

void expect_refused(T5Config config, const TransformerEngineConfig& fp8, const std::string& words) {
  EncoderDecoderModel model(config, {});
  try {
    use_fp8(model, fp8);
    FAIL() << words;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(Fp8Training, WhatDoesNotFitIsRefusedByName) {
  const T5Config config = config_of("none");
  const auto with = [](auto member, auto value) {
    TransformerEngineConfig fp8 = kFp8;
    fp8.*member = value;
    return fp8;
  };
  using Config = TransformerEngineConfig;
  T5Config odd = config;
  odd.mlp_dim = 40;
  expect_refused(odd, kFp8, "encoder/layers_0/mlp/wi_0/kernel has mlp of size 40");
  expect_refused(config, with(&Config::fp8_format, "fp8_e5m2"), "do not multiply E5M2 by E5M2");
  expect_refused(config, with(&Config::fp8_format, "int8"), "fp8_format: expected");
  expect_refused(config, with(&Config::margin, -1.0), "margin: expected 0 to 64, found -1");
  expect_refused(config, with(&Config::amax_history_len, 0), "amax_history_len: expected 1");
  expect_refused(config, with(&Config::amax_compute_algo, "mean"), "amax_compute_algo: expected");
  expect_refused(config, with(&Config::scaling, "block"),
                 "scaling: expected 'delayed' or 'current'");
  if (Device::current().kind() != "emulated") return;
  use_device("emulated:80");
  expect_refused(config, kFp8, "has no FP8 tensor cores");
  use_device("emulated");
}

}  // namespace
}  // namespace quintet::testing
