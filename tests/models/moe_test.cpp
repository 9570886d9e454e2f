// Where sparse layers are, layers without capacity, extreme routing, wrong input.

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "models/base_model.h"
#include "runtime/execution/tape.h"
#include "tests/harness/device.h"

namespace quintet::testing {
namespace {

std::vector<int64_t> sparse_layers(LayerLayout layout, int64_t sparse, int64_t layers) {
  SparseStack stack;
  stack.num_sparse_layers = sparse;
  stack.layout = layout;
  std::vector<int64_t> found;
  for (int64_t i = 0; i < layers; ++i)
    if (stack.is_sparse(i, layers)) found.push_back(i);
  return found;
}

// Padding's logits are the bias: nothing chooses there, but the z-loss counts it.
TEST(MoeRouting, TheBiasHasTheZLossOfPadding) {
  const std::vector<float> b{0.5F, -1.0F, 2.0F, 0.0F};
  HostArray zeros(DType::f32, {1, 4, 8}), w(DType::f32, {8, 4}), bias(DType::f32, {4});
  std::copy(b.begin(), b.end(), bias.as<float>().begin());
  const Tensor x = Tensor::from_host(zeros, {axis::kBatch, axis::kLength, axis::kEmbed});
  Tensor learned = Tensor::from_host(bias, {axis::kUnmodeled});
  learned.set_needs_grad(true);
  Tape tape;
  ops::Routed routed;
  {
    const Tape::Recording recording(tape);
    routed = ops::route(x, Tensor::from_host(w, {axis::kEmbed, axis::kUnmodeled}), learned,
                        {.capacity = 4, .group_size = 4, .groups = 1, .ignore_padding = true});
  }
  tape.backward({routed.z_loss}, {Tensor::scalar(1)});
  double sum = 0;
  for (const float v : b) sum += std::exp(static_cast<double>(v));
  const HostArray grad = learned.grad().to_host();
  EXPECT_NEAR(routed.z_loss.to_host().as<float>()[0], std::pow(std::log(sum), 2), 1e-5);
  for (size_t e = 0; e < b.size(); ++e)
    EXPECT_NEAR(grad.as<float>()[e], 2 * std::log(sum) * std::exp(static_cast<double>(b[e])) / sum,
                1e-5);
}

TEST(MoeRouting, ABiasIsNotPadded) {
  HostArray tokens(DType::f32, {1, 5, 8}), w(DType::f32, {8, 4}), bias(DType::f32, {4});
  try {
    ops::route(
        Tensor::from_host(tokens, {axis::kBatch, axis::kLength, axis::kEmbed}),
        Tensor::from_host(w, {axis::kEmbed, axis::kUnmodeled}),
        Tensor::from_host(bias, {axis::kUnmodeled}),
        {.capacity = 4, .group_size = 8, .groups = 1, .padded_batch = 1, .padded_length = 8});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("5 tokens are no multiple of the 4 experts"),
              std::string::npos)
        << error.what();
  }
}

TEST(SparseStack, PlacesLayersAsFlaxformer) {
  using V = std::vector<int64_t>;
  EXPECT_EQ(sparse_layers(LayerLayout::bottom, 2, 6), (V{0, 1}));
  EXPECT_EQ(sparse_layers(LayerLayout::middle, 2, 6), (V{2, 3}));
  EXPECT_EQ(sparse_layers(LayerLayout::middle, 3, 6), (V{2, 3, 4}));
  EXPECT_EQ(sparse_layers(LayerLayout::top, 2, 6), (V{4, 5}));
  EXPECT_EQ(sparse_layers(LayerLayout::mixed, 2, 6), (V{2, 5}));
  EXPECT_EQ(sparse_layers(LayerLayout::mixed, 6, 6), (V{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(sparse_layers(LayerLayout::second, 3, 11), (V{1, 4, 7, 10}));
  EXPECT_EQ(sparse_layers(LayerLayout::second, 3, 5), (V{0, 1, 2, 3, 4}));
  for (const LayerLayout layout : {LayerLayout::bottom, LayerLayout::mixed, LayerLayout::top})
    EXPECT_EQ(sparse_layers(layout, 0, 6), V());
}

template <typename Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

#define EXPECT_SAYS(body, text) \
  EXPECT_NE(message_of([&] { body; }).find(text), std::string::npos) << message_of([&] { body; })

TEST(SparseStack, RefusesNumbersThatDoNotFit) {
  EXPECT_SAYS(sparse_layers(LayerLayout::mixed, 4, 6),
              "num_sparse_layers=4 to divide num_layers=6");
  EXPECT_SAYS(sparse_layers(LayerLayout::top, 7, 6), "expected 0 to num_layers=6, found 7");
  EXPECT_SAYS(layer_layout_from_name("side"), "'side'");
}

/// A layer of 4 experts on 24 tokens, and what it gives.
struct Layer {
  static constexpr int64_t kEmbed = 8, kTokens = 24;
  MoeConfig config{.num_experts = 4,
                   .max_group_size = 12,
                   .train_capacity_factor = 1,
                   .eval_capacity_factor = 1,
                   .min_expert_capacity = 1,
                   .mlp_dim = 16};
  Parameters parameters;
  Tensor x, y;
  LayerRouting routing;

  explicit Layer(const std::function<void(MoeConfig&)>& change = {},
                 const std::function<void(std::span<float>)>& router = {}) {
    if (change) change(config);
    LayerConfig sizes;
    sizes.emb_dim = kEmbed;
    const MoeLayer layer(Scope(parameters), sizes, config);
    parameters.initialize(key_from_seed(1));
    HostArray tokens(DType::f32, {2, kTokens / 2, kEmbed});
    for (size_t i = 0; i < tokens.as<float>().size(); ++i)
      tokens.as<float>()[i] = 1 + random_uniform(random_bits(key_from_seed(2), i));
    x = Tensor::from_host(tokens, {axis::kBatch, axis::kLength, axis::kEmbed});
    x.set_needs_grad(true);
    if (router) {
      const Tensor& w = parameters.at("router/router_weights/w/kernel").value;
      HostArray values = w.to_host();
      router(values.as<float>());
      w.set(values);
    }
    Tape tape;
    {
      const Tape::Recording recording(tape);
      y = layer(x, {}, &routing);
    }
    HostArray ones(DType::f32, tokens.shape);
    std::fill(ones.as<float>().begin(), ones.as<float>().end(), 1.0F);
    tape.backward({y, routing.auxiliary_loss, routing.z_loss},
                  {Tensor::from_host(ones, {axis::kBatch, axis::kLength, axis::kEmbed}),
                   Tensor::scalar(1), Tensor::scalar(1)});
  }
  std::vector<float> load() const {
    const HostArray load = routing.load.to_host();
    return {load.as<float>().begin(), load.as<float>().end()};
  }
  void expect_finite() const {
    std::vector<Tensor> all = {y, x.grad(), routing.auxiliary_loss, routing.z_loss, routing.counts};
    for (const ParamInfo& info : parameters.all()) all.push_back(info.value.grad());
    for (const Tensor& t : all) {
      const HostArray values = t.to_host();
      for (const float v : values.as<float>()) ASSERT_TRUE(std::isfinite(v));
    }
    const RoutingMetrics metrics = routing_metrics(std::array{routing.counts.to_host()});
    EXPECT_TRUE(std::isfinite(metrics.router_confidence + metrics.expert_usage +
                              metrics.fraction_tokens_left_behind));
  }
};

/// Every token prefers expert 2: its column is positive, as all inputs are.
void all_to_two(std::span<float> router) {
  for (size_t i = 0; i < router.size(); ++i) router[i] = i % 4 == 2 ? 1.0F : -1.0F;
}

TEST(MoeLayer, ServesWhatFitsWhenAllTokensGoToOneExpert) {
  const Layer layer({}, all_to_two);
  layer.expect_finite();
  // Groups of 6 tokens (as many groups as experts): round(6 / 4) = 2 places in each.
  EXPECT_EQ(layer.load(), (std::vector<float>{0, 0, 8, 0}));
  EXPECT_NEAR(
      routing_metrics(std::array{layer.routing.counts.to_host()}).fraction_tokens_left_behind,
      16.0 / 24, 1e-6);
  const HostArray idle = layer.parameters.at("expert/wo/kernel").value.grad().to_host();
  for (size_t i = 0; i < idle.as<float>().size() / 4; ++i) EXPECT_EQ(idle.as<float>()[i], 0);
}

TEST(MoeLayer, WithoutCapacityServesEverybody) {
  const Layer layer([](MoeConfig& c) { c.dropless = true; }, all_to_two);
  layer.expect_finite();
  EXPECT_EQ(layer.load(), (std::vector<float>{0, 0, 24, 0}));
  EXPECT_EQ(routing_metrics(std::array{layer.routing.counts.to_host()}).fraction_tokens_left_behind,
            0);
  // As much capacity as tokens drops nobody either: the same layer.
  const Layer roomy([](MoeConfig& c) { c.eval_capacity_factor = 4; }, all_to_two);
  const HostArray a = layer.y.to_host(), b = roomy.y.to_host();
  EXPECT_TRUE(std::ranges::equal(a.as<float>(), b.as<float>()));
}

TEST(MoeLayer, RefusesWhatMakesNoLayer) {
  EXPECT_SAYS(Layer([](MoeConfig& c) { c.num_experts = 0; }), "num_experts");
  EXPECT_SAYS(Layer([](MoeConfig& c) { c.mlp_dim = 0; }), "intermediate_dim");
  EXPECT_SAYS(Layer([](MoeConfig& c) { c.router.num_selected_experts = 5; }),
              "expected 1 to num_experts=4, found 5");
  EXPECT_SAYS(Layer([](MoeConfig& c) { c.min_expert_capacity = 0, c.eval_capacity_factor = 0.01; }),
              "experts would serve nobody");
  EXPECT_SAYS(Layer([](MoeConfig& c) { c.strict_group_size = true; }), "strict_group_size");
  EXPECT_SAYS(Layer([](MoeConfig& c) { c.router.jitter_noise = 1.5; }), "jitter_noise");
  EXPECT_SAYS(Layer([](MoeConfig& c) { c.max_group_size = 0; }), "max_group_size");
  EXPECT_SAYS(Layer([](MoeConfig& c) {
                c.dropless = true;
                c.router.kind = Router::experts_choose;
              }),
              "dropless");
}

}  // namespace
}  // namespace quintet::testing
