// Microbatches and restarts change nothing: dropout masks and loss factors belong to the whole
// batch.

#include <gtest/gtest.h>

#include "models/base_model.h"
#include "runtime/ops/ops.h"
#include "runtime/optim/optax/noise.h"
#include "runtime/trainer/trainer.h"

namespace quintet {
namespace {

T5Config small_config(double dropout_rate) {
  T5Config config;
  config.vocab_size = 50;
  config.emb_dim = 24;
  config.num_heads = 3;
  config.head_dim = 8;
  config.mlp_dim = 40;
  config.mlp_activations = {"gelu", "linear"};
  config.num_encoder_layers = config.num_decoder_layers = 2;
  config.dropout_rate = dropout_rate;
  return config;
}

HostArrays random_batch(int64_t rows, int64_t inputs, int64_t targets) {
  HostArrays batch;
  const auto fill = [&](const std::string& name, int64_t length, uint32_t seed) {
    HostArray& array = batch[name] = HostArray(DType::i32, {rows, length});
    for (int64_t i = 0; i < rows * length; ++i) {
      const bool padding = i % length >= length - i / length % 4;  // rows end differently
      array.as<int32_t>()[static_cast<size_t>(i)] =
          padding ? 0
                  : 2 + static_cast<int32_t>(
                            random_bits(key_from_seed(seed), static_cast<uint64_t>(i)) % 48);
    }
  };
  fill("encoder_input_tokens", inputs, 1);
  fill("decoder_target_tokens", targets, 2);
  fill("decoder_input_tokens", targets, 3);
  return batch;
}

struct Training {
  explicit Training(int64_t microbatches, const LossNormalizingFactor& factor = {},
                    const TransformationPtr& rule = sgd(0.1), double dropout_rate = 0.25,
                    double loss_factor = 1)
      : model(small_config(dropout_rate), {.z_loss = 1e-3, .loss_normalizing_factor = factor}) {
    model.parameters().initialize(key_from_seed(7));
    trainer = std::make_unique<Trainer>(
        [this, loss_factor](const HostArrays& batch, int64_t begin, int64_t end, Key key) {
          LossOutput out = model.loss_fn(batch, {begin, end}, {.train = true, .dropout_key = key});
          if (loss_factor != 1) out.loss = ops::scale(out.loss, loss_factor);
          return out;
        },
        model.parameters(), optax_optimizer(rule),
        TrainerOptions{.num_microbatches = microbatches,
                       .loss_is_total = loss_factor == 1,
                       .learning_rate = {}},
        key_from_seed(9));
  }
  EncoderDecoderModel model;
  std::unique_ptr<Trainer> trainer;
};

TEST(Microbatches, GiveTheSameStepWithDropout) {
  const HostArrays batch = random_batch(8, 12, 9);
  for (const LossNormalizingFactor& factor :
       {LossNormalizingFactor{},
        LossNormalizingFactor{SpecialLossNormalizingFactor::kNumRealTargetTokens},
        LossNormalizingFactor{SpecialLossNormalizingFactor::kAveragePerSequence}}) {
    Training whole(1, factor);
    const Metrics want = whole.trainer->train(batch).metrics;
    for (const int64_t parts : {2, 4, 8}) {
      SCOPED_TRACE(parts);
      Training split(parts, factor);
      const Metrics got = split.trainer->train(batch).metrics;
      for (const auto& [name, metric] : want)
        EXPECT_NEAR(got.at(name).value(), metric.value(), 1e-5 * std::abs(metric.value()) + 1e-7)
            << name;
      // Sums of at most 8 parts in another order: a few units in the last place of values around 1.
      for (const ParamInfo& info : whole.model.parameters().all()) {
        const auto a = info.value.data<float>();
        const auto b = split.model.parameters().at(info.name).value.data<float>();
        for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5) << info.name;
      }
    }
  }
}

TEST(Microbatches, OfALossThatIsScaledGiveItsStep) {
  const HostArrays batch = random_batch(8, 12, 9);
  Training whole(1, {}, sgd(0.1), 0, 3), split(4, {}, sgd(0.1), 0, 3);
  whole.trainer->train(batch);
  split.trainer->train(batch);
  // Three times the gradients of the test above, and of its bound.
  for (const ParamInfo& info : whole.model.parameters().all()) {
    const auto a = info.value.data<float>();
    const auto b = split.model.parameters().at(info.name).value.data<float>();
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 3e-5) << info.name;
  }
}

TEST(Microbatches, RefuseABatchTheyDoNotDivide) {
  Training run(3);
  try {
    run.trainer->train(random_batch(8, 5, 5));
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage);
    EXPECT_STREQ(e.what(), "num_microbatches 3 does not divide the batch of 8 rows");
  }
}

using Values = std::map<std::string, std::vector<float>>;

Values values_of(const Training& run) {
  Values values;
  for (const ParamInfo& info : run.model.parameters().all())
    values[info.name] = {info.value.data<float>().begin(), info.value.data<float>().end()};
  return values;
}

HostArrays row_of(const HostArrays& batch, int64_t row) {
  HostArrays one;
  for (const auto& [name, array] : batch) {
    const int64_t length = array.shape[1];
    one[name] = HostArray(DType::i32, {1, length});
    std::ranges::copy(
        array.as<int32_t>().subspan(static_cast<size_t>(row * length), static_cast<size_t>(length)),
        one[name].as<int32_t>().begin());
  }
  return one;
}

/// Of one row alone, with its norm over all parameters.
std::pair<Values, double> gradient_of(const HostArrays& row) {
  Training run(1, {}, sgd(1.0), 0);
  Values gradient = values_of(run);
  run.trainer->train(row);
  double squares = 0;
  for (auto& [name, after] : values_of(run))
    for (size_t i = 0; i < after.size(); ++i) {
      gradient[name][i] -= after[i];
      squares += static_cast<double>(gradient[name][i]) * gradient[name][i];
    }
  return {gradient, std::sqrt(squares)};
}

TEST(ClippedExamples, AreEachClippedAndThenAveraged) {
  const HostArrays batch = random_batch(4, 6, 6);
  std::vector<std::pair<Values, double>> examples;
  for (int64_t row = 0; row < 4; ++row) examples.push_back(gradient_of(row_of(batch, row)));
  std::vector<double> norms;
  for (const auto& [gradient, norm] : examples) norms.push_back(norm);
  std::ranges::sort(norms);
  const double clip = (norms[1] + norms[2]) / 2;  // of some and not of others
  Training run(4, {}, dpsgd({{.l2_norm_clip = clip}, 1.0}), 0);
  const Values before = values_of(run);
  run.trainer->train(batch);
  for (const auto& [name, after] : values_of(run))
    for (size_t i = 0; i < after.size(); ++i) {
      double mean = 0;
      for (const auto& [gradient, norm] : examples)
        mean += gradient.at(name)[i] / std::max(norm / clip, 1.0) / 4;
      // Differences of parameters around 1, as float32 has them.
      ASSERT_NEAR(before.at(name)[i] - after[i], mean, 2e-6 + 1e-5 * std::abs(mean)) << name;
    }
}

TEST(ClippedExamples, OfWhichNoneIsClippedAreTheBatch) {
  const HostArrays batch = random_batch(8, 12, 9);
  Training whole(1), private_one(8, {}, dpsgd({{.l2_norm_clip = 1e6}, 0.8}));
  const StepResult want = whole.trainer->train(batch), got = private_one.trainer->train(batch);
  EXPECT_NEAR(got.metrics.at("loss").value(), want.metrics.at("loss").value(), 1e-4);
  const Values values = values_of(private_one);
  for (const auto& [name, expected] : values_of(whole))
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(values.at(name)[i], expected[i], 1e-5) << name;
}

TEST(ClippedExamples, AreAMicrobatchEach) {
  Training run(2, {}, dpsgd({{.l2_norm_clip = 1.0}, 0.1}));
  EXPECT_THROW(run.trainer->train(random_batch(4, 6, 6)), Error);
}

TEST(ClippedExamples, OneThatIsNotFiniteSkipsTheStep) {
  Training run(4, {}, dpsgd({{.l2_norm_clip = 1.0}, 0.1}));
  run.model.parameters().at("decoder/decoder_norm/scale").value.data<float>()[3] =
      std::numeric_limits<float>::infinity();
  EXPECT_TRUE(run.trainer->train(random_batch(4, 6, 6)).skipped);
}

TEST(Trainer, SkipsAStepWhoseGradientsAreNotFinite) {
  Training run(1);
  const HostArrays batch = random_batch(4, 6, 6);
  run.trainer->train(batch);
  const Tensor scale = run.model.parameters().at("decoder/decoder_norm/scale").value;
  const Tensor kernel = run.model.parameters().at("decoder/logits_dense/kernel").value;
  const float kept = scale.data<float>()[3];
  scale.data<float>()[3] = std::numeric_limits<float>::infinity();
  const HostArray before = kernel.to_host();
  const StepResult result = run.trainer->train(batch);
  EXPECT_TRUE(result.skipped);
  EXPECT_FALSE(result.first_bad.empty());
  EXPECT_EQ(kernel.to_host().bytes, before.bytes);
  EXPECT_EQ(run.trainer->step(), 2);
  EXPECT_EQ(run.trainer->skipped_updates(), 1);
  scale.data<float>()[3] = kept;
  EXPECT_FALSE(run.trainer->train(batch).skipped);
}

TEST(Trainer, SaysWhenAnUpdateLeftANumberThatIsNotFinite) {
  Training run(1, {}, sgd(1e39));
  const HostArrays batch = random_batch(4, 6, 6);
  EXPECT_EQ(run.trainer->train(batch).ruined, "") << "finite before it";
  EXPECT_NE(run.trainer->train(batch).ruined, "") << "known with the gradients of the next step";
  run.model.parameters().initialize(key_from_seed(7));
  run.trainer->restored(0, 0);
  EXPECT_EQ(run.trainer->train(batch).ruined, "") << "of other numbers";
}

TEST(Trainer, TriesTheGradientsOfABatchWithoutAnUpdate) {
  Training run(1), other(1);
  const HostArrays batch = random_batch(4, 6, 6);
  EXPECT_EQ(run.trainer->first_bad_gradient(batch), "");
  EXPECT_EQ(run.trainer->train(batch).metrics.at("loss").value(),
            other.trainer->train(batch).metrics.at("loss").value());
  const Tensor kernel = run.model.parameters().at("decoder/logits_dense/kernel").value;
  kernel.data<float>()[0] = std::numeric_limits<float>::infinity();
  EXPECT_NE(run.trainer->first_bad_gradient(batch), "");
  EXPECT_EQ(run.trainer->step(), 1);
  EXPECT_EQ(run.trainer->skipped_updates(), 0);
}

TEST(Dropout, DrawsOtherMasksInEveryStepOfTraining) {
  Training run(1, {}, sgd(0.0));  // nothing but the masks changes
  const HostArrays batch = random_batch(4, 6, 6);
  const double first = run.trainer->train(batch).metrics.at("loss").value();
  EXPECT_NE(run.trainer->train(batch).metrics.at("loss").value(), first);
  run.trainer->restored(0, 0);
  EXPECT_EQ(run.trainer->train(batch).metrics.at("loss").value(), first);
}

TEST(Dropout, DiffersFromStepToStepAndIsOffInEvaluation) {
  Training run(1);
  const HostArrays batch = random_batch(4, 6, 6);
  const auto loss = [&](uint32_t seed) {
    return run.model.loss_fn(batch, {0, 4}, {.train = true, .dropout_key = key_from_seed(seed)})
        .loss.item();
  };
  EXPECT_EQ(loss(1), loss(1));
  EXPECT_NE(loss(1), loss(2));
  EXPECT_EQ(run.model.eval_fn(batch).at("loss").value(),
            run.model.eval_fn(batch).at("loss").value());
  EXPECT_NE(run.model.eval_fn(batch).at("loss").value(), loss(1));
}

}  // namespace
}  // namespace quintet
