// A relative position bias in every layer: what gin files name of it.

#include "models/configurables.h"
#include "tests/models/model_fixture.h"

namespace quintet::testing {
namespace {

T5Config scalable(const std::string& bindings) {
  gin::Registry registry;
  register_runtime(registry);
  register_models(registry);
  gin::Config config(registry, {});
  config.parse_text(
      "from __gin__ import dynamic_registration\n"
      "from t5x.examples.scalable_t5 import network\n"
      "network.Transformer.config = @network.T5Config()\n"
      "network.T5Config.vocab_size = 8\n"
      "MODULE = @network.Transformer()\n" +
          bindings,
      "scalable.gin");
  config.finalize();
  return gin::as<T5Module>(config.evaluate("MODULE"), {"MODULE"}).config;
}

TEST(RelativeBias, IsInEveryLayerOfScalableT5) {
  T5Config config = scalable("network.T5Config.num_buckets = 16");
  EXPECT_FALSE(config.shared_relative_position_bias);
  config.num_encoder_layers = config.num_decoder_layers = 2;
  const EncoderDecoderModel model(config, {});
  int tables = 0;
  for (const ParamInfo& info : model.parameters().all())
    if (info.name.ends_with("/relpos_bias/rel_embedding")) {
      EXPECT_NE(info.name.find("/layers_"), std::string::npos) << info.name;
      EXPECT_EQ(info.spec.axes[1].size, 16);
      ++tables;
    }
  EXPECT_EQ(tables, 4);
}

TEST(RelativeBias, LayersAreScannedUnlessBoundOtherwise) {
  EXPECT_TRUE(scalable("").scalable->scan_layers);
  EXPECT_EQ(scalable("").scalable->param_scan_axis, 1);
  EXPECT_FALSE(scalable("network.T5Config.scan_layers = False").scalable->scan_layers);
  EXPECT_EQ(scalable("network.T5Config.param_scan_axis = 0").scalable->param_scan_axis, 0);
  try {
    scalable("network.T5Config.param_scan_axis = 2");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("param_scan_axis: expected 0 or 1, found 2"),
              std::string::npos)
        << error.what();
  }
}

TEST(RelativeBias, IsAFactoryOfFlaxformersLayers) {
  const auto bias = [](const std::string& layer) {
    return layer +
           ".relative_position_bias_factory = @relative_position_biases.RelativePositionBiases\n";
  };
  const std::string network =
      "from flaxformer.architectures.t5 import t5_architecture\n"
      "from flaxformer.components import relative_position_biases\n" +
      Json::read(fixture_root() / "model" / "moe_switch" / "meta.json")["config"]["gin"]
          .as_string();
  const std::string encoder =
      bias("t5_architecture.EncoderLayer") + bias("moe_architecture.SparseEncoderLayer");
  const std::string decoder =
      bias("t5_architecture.DecoderLayer") + bias("moe_architecture.SparseDecoderLayer");
  EXPECT_FALSE(read_flaxformer(network + encoder + decoder).shared_relative_position_bias);
  EXPECT_THROW(read_flaxformer(network + encoder), Error);
  EXPECT_THROW(read_flaxformer(network + encoder + bias("t5_architecture.DecoderLayer")), Error);
}

std::string flaxformer_says(const std::string& bindings) {
  try {
    read_flaxformer(bindings);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(RelativeBias, HasTheSizesThatFlaxformersFilesBind) {
  const std::string imports =
      "from flaxformer.architectures.t5 import t5_architecture\n"
      "from flaxformer.components import relative_position_biases\n";
  const std::string network =
      imports + Json::read(fixture_root() / "model" / "moe_switch" / "meta.json")["config"]["gin"]
                    .as_string();
  const T5Config config =
      read_flaxformer(network +
                      "relative_position_biases.RelativePositionBiases.num_buckets = 12\n"
                      "relative_position_biases.RelativePositionBiases.max_distance = 40\n");
  EXPECT_EQ(config.num_buckets, 12);
  EXPECT_EQ(config.max_distance, 40);
  const std::string none =
      "moe_architecture.SparseEncoder.shared_relative_position_bias_factory = None\n"
      "moe_architecture.SparseDecoder.shared_relative_position_bias_factory = None\n";
  EXPECT_NE(flaxformer_says(network + none).find("shared_relative_position_bias_factory"),
            std::string::npos)
      << flaxformer_says(network + none);
}

TEST(SparseLayers, HaveTheDenseLayersAttention) {
  const std::string network =
      "from flaxformer.components.attention import dense_attention\n" +
      Json::read(fixture_root() / "model" / "moe_switch" / "meta.json")["config"]["gin"]
          .as_string();
  const std::string said =
      flaxformer_says(network +
                      "moe_architecture.SparseEncoderLayer.attention = "
                      "@other/dense_attention.MultiHeadDotProductAttention()\n"
                      "other/dense_attention.MultiHeadDotProductAttention.head_dim = 2\n");
  EXPECT_NE(said.find("sparse_layer_factory: expected the attention"), std::string::npos) << said;
}

}  // namespace
}  // namespace quintet::testing
