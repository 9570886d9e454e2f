// scale_attn_logits divides attention scores by sqrt(head_dim): the same as query kernels that were
// divided by it, whose results the fixtures check.

#include <gtest/gtest.h>

#include "models/base_model.h"
#include "models/decoding/cpu/transformer_decoder.h"

namespace quintet {
namespace {

T5Config config_of(bool scaled) {
  T5Config config;
  config.vocab_size = 40;
  config.emb_dim = 12;
  config.num_heads = 2;
  config.head_dim = 6;
  config.mlp_dim = 20;
  config.num_encoder_layers = 1;
  config.num_decoder_layers = 2;
  config.dropout_rate = 0;
  config.scale_attn_logits = scaled;
  return config;
}

struct Model : EncoderDecoderModel {
  /// Random parameters; query kernels stronger than fresh ones, divided by `divisor`.
  Model(bool scaled, float divisor) : EncoderDecoderModel(config_of(scaled), {}) {
    parameters().initialize(key_from_seed(3));
    for (ParamInfo& info : parameters().all())
      if (info.name.ends_with("query/kernel"))
        for (float& w : info.value.data<float>()) w *= 20 / divisor;
  }
};

HostArray tokens(int64_t rows, int64_t length, int32_t first) {
  HostArray array(DType::i32, {rows, length});
  for (int32_t i = 0; int32_t & id : array.as<int32_t>()) id = 2 + (first + 7 * i++) % 38;
  return array;
}

HostArrays batch() {
  HostArrays batch;
  batch["encoder_input_tokens"] = tokens(3, 7, 0);
  batch["decoder_input_tokens"] = tokens(3, 5, 11);
  batch["decoder_target_tokens"] = tokens(3, 5, 23);
  return batch;
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
  return largest;
}

TEST(ScaleAttnLogits, IsAQueryKernelDividedByTheRootOfTheHeadSize) {
  const Model scaled(true, 1), divided(false, std::sqrt(6.0f)), plain(false, 1);
  const Tensor got = scaled.logits(batch()), want = divided.logits(batch());
  EXPECT_LT(largest_difference(got.data<float>(), want.data<float>()), 2e-5);
  const Tensor without = plain.logits(batch());
  EXPECT_GT(largest_difference(got.data<float>(), without.data<float>()), 1e-3);
}

/// Logits of the first decoding steps, all rows.
std::vector<float> steps_of(const Model& model) {
  using namespace decoding;
  const PackedNetwork network(model.spec(), [&](const std::string& name) {
    return model.parameters().at(name).value.local();
  });
  const HostArrays in = batch();
  TransformerDecoder decoder(network);
  decoder.begin(in.at("encoder_input_tokens").as<int32_t>(), 3, 7,
                {.num_decodes = 1, .max_length = 5});
  std::vector<float> all;
  for (int32_t t = 0; t < 5; ++t) {
    const std::vector<int32_t> rows = {0, 1, 2}, positions(3, t);
    std::vector<int32_t> next;
    for (size_t row = 0; row < 3; ++row)
      next.push_back(in.at("decoder_input_tokens").as<int32_t>()[row * 5 + static_cast<size_t>(t)]);
    const auto logits =
        decoder.step({.rows = rows, .tokens = next, .positions = positions, .sources = {}});
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

TEST(ScaleAttnLogits, HoldsInDecodingToo) {
  const std::vector<float> got = steps_of(Model(true, 1));
  EXPECT_LT(largest_difference(got, steps_of(Model(false, std::sqrt(6.0f)))), 2e-5);
  EXPECT_GT(largest_difference(got, steps_of(Model(false, 1))), 1e-3);
}

}  // namespace
}  // namespace quintet
