// Networks made of parameters that were quantized before, one by one, are those quantized when they
// are made; and what a decoder-only network loses.

#include "models/decoding/network/quantized_parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "models/decoding/cpu/transformer_decoder.h"
#include "models/decoding/quantization_loss.h"
#include "models/network.h"
#include "tests/decode/random_parameters.h"

namespace quintet::testing {
namespace {

using namespace decoding;
using Ids = std::vector<int32_t>;

template <class Config>
Config small_config() {
  Config c;
  c.vocab_size = 37, c.emb_dim = 22, c.num_heads = 3, c.head_dim = 6, c.mlp_dim = 21;
  c.mlp_activations = {"gelu", "linear"};
  return c;
}

T5Config encoder_decoder() {
  auto c = small_config<T5Config>();
  c.num_encoder_layers = 1, c.num_decoder_layers = 2;
  return c;
}

View view_of(const HostArray& array) {
  View view = View::of(reinterpret_cast<const uint8_t*>(array.bytes.data()), array.shape);
  view.dtype = array.dtype;
  return view;
}

void expect_equal(const PackedNetwork& a, const PackedNetwork& b) {
  EXPECT_EQ(a.bytes(), b.bytes());
  for (const std::string& part : a.parts()) {
    const auto of_a = a.matrices(part), of_b = b.matrices(part);
    ASSERT_EQ(of_a.size(), of_b.size());
    for (size_t m = 0; m < of_a.size(); ++m) {
      ASSERT_EQ(of_a[m].type(), of_b[m].type());
      std::vector<float> x(static_cast<size_t>(of_a[m].k())), y(x.size());
      for (int64_t column = 0; column < of_a[m].n(); ++column) {
        of_a[m].column(column, x.data());
        of_b[m].column(column, y.data());
        ASSERT_EQ(x, y) << part << ", matrix " << m << ", column " << column;
      }
      if (of_a[m].type() != WeightType::int8_dynamic) continue;
      for (int64_t panel = 0; panel < of_a[m].panels(); ++panel)
        for (int64_t i = 0; i < panel_width(); ++i)
          ASSERT_EQ(of_a[m].sums(panel)[i], of_b[m].sums(panel)[i]);
    }
  }
  std::vector<float> x(static_cast<size_t>(a.spec().emb_dim())), y(x.size());
  for (int32_t token = 0; token < a.spec().vocab_size; ++token) {
    for (const bool encodes : {true, false}) {
      const auto stack = [&](const PackedNetwork& n) -> const PackedStack& {
        return encodes ? n.encoder() : n.decoder();
      };
      a.embed(stack(a), token, x.data());
      b.embed(stack(b), token, y.data());
      ASSERT_EQ(x, y) << "token " << token;
    }
  }
}

template <class Network, class Config>
void expect_same_network(const Config& config) {
  const auto parameters = parameters_of<Network>(config, 1);
  const ModelSpec spec = spec_of(config);
  const ParameterSource plain = [&](const std::string& name) {
    return view_of(parameters.at(name));
  };
  for (const WeightType type :
       {WeightType::bf16, WeightType::int8, WeightType::int8_dynamic, WeightType::fp8}) {
    SCOPED_TRACE(name_of(type));
    QuantizedParameter held;
    int64_t bytes = 0;
    const ParameterSource quantized = [&](const std::string& name) -> StoredParameter {
      held = quantize_parameter(spec, name, view_of(parameters.at(name)),
                                type == WeightType::int8_dynamic ? WeightType::int8 : type);
      bytes += std::ssize(held.values.bytes) + std::ssize(held.scales.bytes);
      return {view_of(held.values), held.scales.as<float>().data()};
    };
    const PackedNetwork network(spec, quantized, type);
    expect_equal(PackedNetwork(spec, plain, type), network);
    int64_t floats = 0;
    for (const auto& [name, array] : parameters) floats += array.elements();
    if (!spec.decoder.has_experts()) {  // stacked experts are read one by one
      EXPECT_LT(bytes, (type == WeightType::bf16 ? 3 : 2) * floats);
    }
  }
}

TEST(QuantizedParameters, MakeTheNetworkThatIsQuantizedWhenMade) {
  expect_same_network<Transformer>(encoder_decoder());
  T5Config tied = encoder_decoder();
  tied.logits_via_embedding = true;
  tied.mlp_activations = {"relu"};
  expect_same_network<Transformer>(tied);
  T5Config scaled = encoder_decoder();
  scaled.scale_attn_logits = true;
  expect_same_network<Transformer>(scaled);
  T5Config sparse = encoder_decoder();
  sparse.decoder.sparse.num_sparse_layers = 1;
  sparse.decoder.sparse_layers.extra_mlp = true;
  sparse.decoder.sparse.moe.num_experts = 4;
  sparse.decoder.sparse.moe.mlp_dim = 18;
  sparse.decoder.sparse.moe.activations = {"relu"};
  sparse.encoder = sparse.decoder;
  sparse.separate_embeddings = true;
  expect_same_network<Transformer>(sparse);
  for (StackConfig* stack : {&sparse.encoder, &sparse.decoder})
    stack->dense_layers.form = stack->sparse_layers.form = LayerForm::parallel;
  expect_same_network<Transformer>(sparse);
  T5Config biased = encoder_decoder();
  biased.shared_relative_position_bias = false;
  expect_same_network<Transformer>(biased);
  auto decoder = small_config<TransformerConfig>();
  decoder.num_layers = 2;
  expect_same_network<DecoderOnlyTransformer>(decoder);
}

TEST(QuantizedParameters, OfOtherTypesThanTheNetworksAreRefused) {
  const auto parameters = parameters_of<Transformer>(encoder_decoder(), 1);
  const ModelSpec spec = spec_of(encoder_decoder());
  QuantizedParameter held;
  const ParameterSource quantized = [&](const std::string& name) -> StoredParameter {
    held = quantize_parameter(spec, name, view_of(parameters.at(name)), WeightType::int8);
    return {view_of(held.values), held.scales.as<float>().data()};
  };
  for (const WeightType type : {WeightType::f32, WeightType::bf16, WeightType::fp8})
    EXPECT_THROW(PackedNetwork(spec, quantized, type), Error) << name_of(type);
}

/// KL(exact || other) a token of the targets, each read after the inputs and the targets before it.
double divergence(const PackedNetwork& exact, const PackedNetwork& other, const Ids& inputs,
                  const Ids& targets) {
  Ids text{0};
  text.insert(text.end(), inputs.begin(), inputs.end());
  text.insert(text.end(), targets.begin(), targets.end());
  TransformerDecoder a(exact), b(other);
  const std::vector<int32_t> none{0}, row{0};
  for (TransformerDecoder* decoder : {&a, &b})
    decoder->begin_prefix(none, 1, 1, none, false, {.num_decodes = 1, .max_length = 32});
  double sum = 0;
  for (size_t t = 0; t + 1 < text.size(); ++t) {
    const std::vector<int32_t> token{text[t]}, position{static_cast<int32_t>(t)};
    const StepInput input{.rows = row, .tokens = token, .positions = position, .sources = {}};
    const auto p = a.step(input), q = b.step(input);
    if (t < inputs.size()) continue;
    double of_p = 0, of_q = 0;
    for (const float x : p) of_p += std::exp(static_cast<double>(x));
    for (const float x : q) of_q += std::exp(static_cast<double>(x));
    for (size_t v = 0; v < p.size(); ++v) {
      const double log_p = static_cast<double>(p[v]) - std::log(of_p);
      sum += std::exp(log_p) * (log_p - static_cast<double>(q[v]) + std::log(of_q));
    }
  }
  return sum;
}

TEST(QuantizationLoss, OfADecoderOnlyNetworkIsOfWhatFollowsThePrefix) {
  auto config = small_config<TransformerConfig>();
  config.num_layers = 2;
  const auto parameters = parameters_of<DecoderOnlyTransformer>(config, 1);
  const ParameterSource source = [&](const std::string& name) {
    return view_of(parameters.at(name));
  };
  const PackedNetwork exact(spec_of(config), source);
  const PackedNetwork small(spec_of(config), source, WeightType::int8);
  const std::vector<Ids> inputs{{5, 9, 11, 30}, {}, {7, 8}}, targets{{3, 4}, {6, 2, 9}, {12}};
  double want = 0;
  for (size_t i = 0; i < inputs.size(); ++i)
    want += divergence(exact, small, inputs[i], targets[i]);
  const auto causal = quantization_losses(exact, small, inputs, targets);
  EXPECT_EQ(causal.back().part, "all");
  EXPECT_GT(want, 0);
  EXPECT_NEAR(causal.back().divergence, want / 6, 1e-6 + 1e-3 * want);
  const auto both_ways = quantization_losses(exact, small, inputs, targets, true);
  EXPECT_NE(both_ways.back().divergence, causal.back().divergence);
  EXPECT_LT(quantization_losses(exact, exact, inputs, targets, true).back().divergence, 1e-9);
}

}  // namespace
}  // namespace quintet::testing
