// Adapters get the gradients that differences say, whatever the frozen kernels are held in; nothing else gets one.

#include "models/lora.h"

#include <cmath>

#include "kernels/prepacked_matmul/prepacked_matmul.h"
#include "models/layers.h"
#include "runtime/execution/tape.h"
#include "tests/harness/fixtures.h"

namespace quintet::testing {
namespace {

T5Config tiny_config() {
  T5Config config;
  config.vocab_size = 32;
  config.emb_dim = 16;
  config.num_heads = 2;
  config.head_dim = 8;
  config.mlp_dim = 24;
  config.mlp_activations = {"gelu", "linear"};
  config.num_encoder_layers = config.num_decoder_layers = 1;
  config.dropout_rate = 0;
  return config;
}

HostArrays some_tokens() {
  HostArrays batch;
  for (const auto& [name, length] : {std::pair{"encoder_input_tokens", 7},
                                     {"decoder_input_tokens", 5},
                                     {"decoder_target_tokens", 5}}) {
    HostArray& array = batch[name] = HostArray(DType::i32, {4, length});
    int32_t i = 0;
    for (int32_t& token : array.as<int32_t>()) token = 3 + (i++ * 7 + length) % 28;
  }
  return batch;
}

double loss_of(const BaseModel& model) {
  const HostArrays batch = some_tokens();
  return model.loss_fn(batch, Rows::all(batch), {.train = true}).loss.item();
}

void differentiate(const BaseModel& model) {
  const HostArrays batch = some_tokens();
  Tape tape;
  Tensor loss;
  {
    const Tape::Recording recording(tape);
    loss = model.loss_fn(batch, Rows::all(batch), {.train = true}).loss;
  }
  tape.backward(loss);
}

/// Gives `to` the frozen matrix `w`, in its bits, and `w` what these say.
void hold(const ParamInfo& to, HostArray& w) {
  const int64_t rows = w.shape[0], columns = w.shape[1];
  HostArray held(to.spec.dtype, w.shape), scales(DType::f32, {columns});
  const auto values = w.as<float>();
  const auto round = [&]<typename T>(T* out) {
    for (int64_t c = 0; c < columns; ++c) {
      const float scale = scales.as<float>()[static_cast<size_t>(c)] =
          quantize_column(values.data() + c, rows, columns, out + c);
      for (int64_t i = c; i < rows * columns; i += columns)
        values[static_cast<size_t>(i)] = static_cast<float>(out[i]) * scale;
    }
  };
  if (to.spec.dtype == DType::i8) {
    round(reinterpret_cast<int8_t*>(held.bytes.data()));
  } else if (to.spec.dtype == DType::u8) {
    round(reinterpret_cast<float8*>(held.bytes.data()));
  } else {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(held.as<bfloat16>()[i] = bfloat16(values[i]));
  }
  to.value.set(held);
  if (to.scales) to.scales.set(scales);
}

struct Models {
  EncoderDecoderModel held{tiny_config(), {}}, wide{tiny_config(), {}};

  explicit Models(const std::string& base_dtype) {
    LoraConfig lora{.rank = 3, .alpha = 6, .targets = {"/kernel$"}};
    add_adapters(wide, lora);
    lora.base_dtype = base_dtype;
    add_adapters(held, lora);
    EncoderDecoderModel plain(tiny_config(), {});
    plain.parameters().initialize(key_from_seed(1));
    for (EncoderDecoderModel* model : {&held, &wide})
      model->parameters().initialize(key_from_seed(1));
    for (ParamInfo& info : wide.parameters().all()) {
      const ParamInfo& same = held.parameters().at(info.name);
      HostArray values =
          info.frozen ? plain.parameters().at(info.name).value.to_host() : info.value.to_host();
      float i = 0;
      if (info.name.ends_with("lora_b"))
        for (float& x : values.as<float>()) x = 0.1F * std::sin(i++);
      if (same.spec.dtype == DType::f32)
        same.value.set(values);
      else
        hold(same, values);
      info.value.set(values);
    }
  }
};

TEST(Lora, AdaptersAloneHaveGradientsAndTheyAreDifferences) {
  const Models models("float32");
  differentiate(models.wide);
  const auto trained = models.wide.parameters().trained();
  EXPECT_EQ(trained.size(), 2 * 18);  // 4 kernels of 3 attentions, 3 of 2 MLPs
  for (const ParamInfo& info : models.wide.parameters().all())
    EXPECT_EQ(info.used().grad().absent(), info.frozen) << info.name;
  for (const ParamInfo* info : trained) {
    const HostArray before = info->value.to_host(), gradient = info->used().grad().to_host();
    const auto at = static_cast<size_t>(before.elements() / 2);
    constexpr float kStep = 2e-3F;
    double difference = 0;
    for (const float step : {kStep, -kStep}) {
      HostArray moved = before;
      moved.as<float>()[at] += step;
      info->value.set(moved);
      difference += loss_of(models.wide) / (2 * step);
    }
    info->value.set(before);
    EXPECT_NEAR(gradient.as<float>()[at], difference, 0.01 * std::abs(difference) + 1e-3)
        << info->name;
  }
}

TEST(Lora, BasesInFewerBitsGiveTheGradientsOfTheirValues) {
  for (const char* base : {"bfloat16", "int8", "fp8"}) {
    SCOPED_TRACE(base);
    const Models models(base);
    EXPECT_NEAR(loss_of(models.held), loss_of(models.wide), 1e-5);
    for (const EncoderDecoderModel* model : {&models.held, &models.wide}) differentiate(*model);
    for (const ParamInfo* info : models.wide.parameters().trained()) {
      const HostArray want = info->used().grad().to_host();
      const HostArray got = models.held.parameters().at(info->name).used().grad().to_host();
      EXPECT_TRUE(near_array(got.as<float>(), want.as<float>(), kT2)) << info->name;
    }
  }
}

TEST(Lora, AnotherDtypeIsAMistakeUnlessTheKernelIsFrozen) {
  const HostArray values(DType::bf16, {3, 4}), wide(DType::f32, {2, 3});
  ParamInfo kernel;
  kernel.value = Tensor::from_host(values, {"in", "out"});
  const Tensor x = Tensor::from_host(wide, {"rows", "in"});
  EXPECT_ANY_THROW(dense(x, Param(&kernel), {}));
  kernel.frozen = true;
  EXPECT_EQ(dense(x, Param(&kernel), {}).spec().dtype, DType::f32);
}

}  // namespace
}  // namespace quintet::testing
