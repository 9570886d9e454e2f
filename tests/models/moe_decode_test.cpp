// Generation with experts: step by step as all at once, as long as nobody is turned away.

#include <gtest/gtest.h>

#include "models/base_model.h"
#include "models/decoding/transformer_decoder.h"

namespace quintet::testing {
namespace {

constexpr int64_t kRows = 5, kInputs = 6, kTargets = 7;

T5Config config(int64_t chosen, bool gated, bool extra, Router encoder) {
  T5Config c;
  c.vocab_size = 37, c.emb_dim = 24, c.num_heads = 3, c.head_dim = 8, c.mlp_dim = 20;
  c.mlp_activations = {"relu"};
  c.num_encoder_layers = c.num_decoder_layers = 2;
  c.masks_padding = true;
  SparseStack stack;
  stack.num_sparse_layers = 1;
  stack.extra_mlp = extra;
  stack.moe.num_experts = 4;
  stack.moe.mlp_dim = 18;
  stack.moe.activations = gated ? std::vector<std::string>{"gelu", "linear"} : std::vector<std::string>{"relu"};
  stack.moe.eval_capacity_factor = 8;  // room for all
  stack.moe.router.num_selected_experts = chosen;
  stack.moe.router.weights_stddev = 1;
  c.sparse_decoder = stack;
  c.sparse_encoder = stack;
  c.sparse_encoder.moe.router.kind = encoder;
  return c;
}

HostArray tokens(int64_t length, uint32_t seed) {
  HostArray array(DType::i32, {kRows, length});
  for (size_t i = 0; i < array.as<int32_t>().size(); ++i)
    array.as<int32_t>()[i] = 1 + static_cast<int32_t>(random_bits(key_from_seed(seed), i) % 36);
  return array;
}

void expect_steps_agree(const T5Config& c) {
  EncoderDecoderModel model(c, {});
  model.parameters().initialize(key_from_seed(3));
  HostArrays batch{{"encoder_input_tokens", tokens(kInputs, 1)},
                   {"decoder_target_tokens", tokens(kTargets, 2)},
                   {"decoder_input_tokens", tokens(kTargets, 3)}};
  for (int64_t row = 0; row < kRows; ++row) {  // inputs end at different places
    for (int64_t i = kInputs - row % 3; i < kInputs; ++i)
      batch["encoder_input_tokens"].as<int32_t>()[static_cast<size_t>(row * kInputs + i)] = 0;
  }
  const HostArray whole = model.logits(batch).to_host();
  using namespace decoding;
  const PackedNetwork network(
      shape_of(c), [&](const std::string& name) { return model.parameters().at(name).value.local(); },
      [&](std::span<const int32_t> ids, int64_t rows, int64_t length) {
        HostArray inputs(DType::i32, {rows, length});
        std::copy(ids.begin(), ids.end(), inputs.as<int32_t>().begin());
        const HostArray y = model.encode({{"encoder_input_tokens", inputs}}, {0, rows}, {.dropless = true}).to_host();
        return std::vector<float>(y.as<float>().begin(), y.as<float>().end());
      });
  TransformerDecoder decoder(network);
  decoder.begin(batch.at("encoder_input_tokens").as<int32_t>(), kRows, kInputs,
                {.num_decodes = 1, .max_length = kTargets});
  std::vector<int32_t> rows(kRows);
  for (int32_t i = 0; i < kRows; ++i) rows[static_cast<size_t>(i)] = i;
  for (int32_t t = 0; t < kTargets; ++t) {
    std::vector<int32_t> next;
    for (int64_t row = 0; row < kRows; ++row)
      next.push_back(batch.at("decoder_input_tokens").as<int32_t>()[static_cast<size_t>(row * kTargets + t)]);
    const std::vector<int32_t> positions(kRows, t);
    const auto got = decoder.step({.rows = rows, .tokens = next, .positions = positions, .sources = {}});
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t v = 0; v < c.vocab_size; ++v)
        ASSERT_NEAR(got[static_cast<size_t>(row * c.vocab_size + v)],
                    whole.as<float>()[static_cast<size_t>((row * kTargets + t) * c.vocab_size + v)], 2e-4)
            << "row " << row << ", step " << t;
  }
}

TEST(MoeDecoding, StepsAgreeWithTheWhole) {
  for (const int64_t chosen : {1, 2})
    for (const bool gated : {false, true}) {
      SCOPED_TRACE(::testing::Message() << chosen << (gated ? " gated" : ""));
      expect_steps_agree(config(chosen, gated, false, Router::tokens_choose));
    }
  expect_steps_agree(config(2, true, true, Router::tokens_choose));
  expect_steps_agree(config(2, true, false, Router::experts_choose));
}

TEST(MoeDecoding, RefusesExpertsThatChooseLaterTokens) {
  T5Config c = config(1, false, false, Router::tokens_choose);
  c.sparse_decoder.moe.router.kind = Router::experts_choose;
  const decoding::ParameterSource none = [](const std::string&) { return View::none(); };
  const decoding::EncoderFunction encode = [](auto, auto, auto) { return std::vector<float>(); };
  EXPECT_THROW(decoding::PackedNetwork(decoding::shape_of(c), none, encode), Error);
}

}  // namespace
}  // namespace quintet::testing
