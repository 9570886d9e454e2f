// Encoders with experts in inference: the layers of generation, without the model that trained them, give what
// the training network gives.

#include <gtest/gtest.h>

#include "models/decoding/cpu/transformer_decoder.h"
#include "models/decoding/encoding.h"
#include "models/decoding/gpu/gpu_decoder.h"
#include "tests/models/sparse_network.h"

namespace quintet::testing {
namespace {

using namespace decoding;
using Inputs = std::vector<std::vector<int32_t>>;

bool on_cpu() { return Device::current().is_cpu(); }

std::vector<SparseOptions> encoder_kinds() {
  std::vector<SparseOptions> kinds{{.chosen = 1, .capacity = 2}, {.gated = true, .capacity = 1}};
  for (const SparseOptions& options : sparse_kinds())
    if (!options.decoder_only && options.encoder) kinds.push_back(options);
  return kinds;
}

Inputs some_inputs() {
  Inputs inputs;
  for (const size_t n : {5, 1, 9, 200})
    for (auto& tokens = inputs.emplace_back(); tokens.size() < n;)
      tokens.push_back(2 +
                       static_cast<int32_t>(random_bits(key_from_seed(9), 300 * n + tokens.size()) %
                                            (kSparseVocab - 2)));
  return inputs;
}

std::vector<const std::vector<int32_t>*> pointers(const Inputs& inputs) {
  std::vector<const std::vector<int32_t>*> all;
  for (const auto& one : inputs) all.push_back(&one);
  return all;
}

/// By the training network, one alone.
std::vector<float> trained_on(const BaseModel& model, const std::vector<int32_t>& tokens) {
  HostArray array(DType::i32, {1, std::ssize(tokens)});
  std::copy(tokens.begin(), tokens.end(), array.as<int32_t>().begin());
  const HostArray y = model.encode({{"encoder_input_tokens", array}}, {0, 1}, {}).to_host();
  return {y.as<float>().begin(), y.as<float>().end()};
}

/// On the current device, after the model is gone.
std::vector<std::vector<float>> encoded(SparseNetwork network, const Inputs& inputs) {
  if (on_cpu()) {
    const auto packed = network.packed();
    network.model.reset();
    return encode_each(*packed, pointers(inputs));
  }
  const GpuWeights weights(*network.model);
  network.model.reset();
  return encode_each(weights, pointers(inputs));
}

void expect_near(std::span<const float> got, std::span<const float> want, float tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance) << "number " << i;
}

TEST(MoeEncoding, IsTheTrainingNetworksWithoutIt) {
  const Inputs inputs = some_inputs();
  for (const SparseOptions& options : encoder_kinds()) {
    SCOPED_TRACE(options.name());
    const SparseNetwork network = sparse_network(options);
    std::vector<std::vector<float>> want;
    for (const auto& tokens : inputs) want.push_back(trained_on(*network.model, tokens));
    const auto got = encoded(sparse_network(options), inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      // A GPU's padding takes part where experts choose.
      if (!on_cpu() && options.encoder == Router::experts_choose) continue;
      expect_near(got[i], want[i], 1e-4F);
    }
  }
}

TEST(MoeEncoding, NeighboursChangeNoBit) {
  const Inputs inputs = some_inputs();
  for (const SparseOptions& options : encoder_kinds()) {
    SCOPED_TRACE(options.name());
    const auto together = encoded(sparse_network(options), inputs);
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_EQ(encoded(sparse_network(options), {inputs[i]}).front(), together[i])
          << "input " << i;
  }
}

/// Generation, serving and embeddings have one encoder.
TEST(MoeEncoding, IsWhatCrossAttentionReads) {
  if (!on_cpu()) GTEST_SKIP() << "a decoder on a GPU keeps no encoder output";
  const std::vector<int32_t> tokens = some_inputs()[2];
  for (const SparseOptions& options : encoder_kinds()) {
    SCOPED_TRACE(options.name());
    const SparseNetwork network = sparse_network(options);
    const auto packed = network.packed();
    TransformerDecoder decoder(*packed);
    decoder.begin(tokens, 1, std::ssize(tokens), {.num_decodes = 1, .max_length = 4});
    const auto read = decoder.encoded(0);
    const std::vector<const std::vector<int32_t>*> one{&tokens};
    EXPECT_EQ(encode_each(*packed, one).front(), std::vector<float>(read.begin(), read.end()));
  }
}

/// Experts of an encoder in eight bits are nearly those in float32.
TEST(MoeEncoding, ExpertsAreQuantized) {
  const Inputs inputs = some_inputs();
  const SparseOptions options{.gated = true, .extra = true};
  const auto exact = encoded(sparse_network(options), inputs);
  SparseNetwork network = sparse_network(options);
  const ParameterSource source = network.source();
  std::vector<std::vector<float>> got;
  if (on_cpu())
    got = encode_each(PackedNetwork(network.spec(), source, WeightType::int8), pointers(inputs));
  else
    got = encode_each(GpuWeights(*network.model, {WeightType::int8, source}), pointers(inputs));
  double difference = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i)
    for (size_t k = 0; k < got[i].size(); ++k) {
      difference += std::pow(static_cast<double>(got[i][k] - exact[i][k]), 2);
      size += std::pow(static_cast<double>(exact[i][k]), 2);
    }
  EXPECT_GT(difference, 0);
  EXPECT_LT(std::sqrt(difference / size),
            0.15);  // a token near two experts may change to the other
}

TEST(MoeEncoding, RefusesCapacitiesOfOtherRouters) {
  for (const auto& change : std::vector<std::function<void(MoeConfig&)>>{
           [](MoeConfig& c) { c.expert_capacity = -1; },
           [](MoeConfig& c) { c.router.num_selected_experts = 2; },
           [](MoeConfig& c) { c.dropless = true; },
           [](MoeConfig& c) { c.router.batch_prioritized_routing = true; },
           [](MoeConfig& c) { c.router.kind = Router::experts_choose; }}) {
    T5Config config = sparse_config<T5Config>({.capacity = 2});
    change(config.encoder.sparse.moe);
    EXPECT_THROW(EncoderDecoderModel(config, {}), Error);
  }
}

}  // namespace
}  // namespace quintet::testing
