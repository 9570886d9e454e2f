// What gin files bind of flaxformer's dense modules: networks of these, or errors that say what to bind.

#include "models/decoding/network/quantized_parameters.h"
#include "models/fp8.h"
#include "tests/models/model_fixture.h"

namespace quintet::testing {
namespace {

constexpr const char* kDenseGin = "flaxformer/t5x/configs/t5/architectures/t5_1_1_flaxformer.gin";

std::string tiny(const std::string& bindings) {
  return "NUM_ENCODER_LAYERS = 1\nNUM_DECODER_LAYERS = 2\nNUM_HEADS = 2\nHEAD_DIM = 4\n"
         "EMBED_DIM = 8\nMLP_DIM = 16\nNUM_EMBEDDINGS = 32\n" +
         bindings;
}
const std::string kDecoderOnly =
    "ARCHITECTURE = @t5_architecture.DecoderOnly()\n"
    "t5_architecture.DecoderOnly.decoder_factory = @t5_architecture.Decoder\n";
const std::string kEmbedder = "t5_architecture.Decoder.token_embedder_factory = @embedding.Embed\n";
const std::string kNoCross = "t5_architecture.DecoderLayer.encoder_decoder_attention = None\n";
const std::string kRotary =
    "dense_attention.MultiHeadDotProductAttention.use_rotary_embedding = True\n";
const std::string kMultiQuery =
    "dense_attention.MultiQueryDotProductAttention.num_heads = 2\n"
    "dense_attention.MultiQueryDotProductAttention.head_dim = 4\n"
    "t5_architecture.EncoderLayer.attention = "
    "@dense_attention.MultiQueryDotProductAttention()\n";

const std::string kScanned =
    "t5_architecture.Encoder.scan_layers = True\nt5_architecture.Decoder.scan_layers = True\n";
const std::string kScannedLayers =
    "t5_architecture.EncoderLayer.scanned = True\nt5_architecture.DecoderLayer.scanned = True\n";
const std::string kScannedWhole = "t5_architecture.EncoderDecoder.scan_layers = True\n";
const std::string kEachBias =
    "t5_architecture.EncoderLayer.relative_position_bias_factory = "
    "@relative_position_biases.RelativePositionBiases\n"
    "t5_architecture.DecoderLayer.relative_position_bias_factory = "
    "@relative_position_biases.RelativePositionBiases\n"
    "t5_architecture.Encoder.shared_relative_position_bias_factory = None\n"
    "t5_architecture.Decoder.shared_relative_position_bias_factory = None\n";
const std::string kFused =
    kDecoderOnly + kEmbedder +
    "t5_architecture.Decoder.layer_factory = @parallel_fused_decoder.ParallelFusedDecoderLayer\n"
    "parallel_fused_decoder.ParallelFusedDecoderLayer.self_attention = "
    "@dense_attention.MultiQueryDotProductAttention()\n"
    "parallel_fused_decoder.ParallelFusedDecoderLayer.mlp = @dense.MlpBlock()\n"
    "dense_attention.MultiQueryDotProductAttention.num_heads = 2\n"
    "dense_attention.MultiQueryDotProductAttention.head_dim = 4\n"
    "dense_attention.MultiQueryDotProductAttention.rescale_logits = True\n";
const std::string kFusedEncoder =
    "t5_architecture.Encoder.layer_factory = @parallel_fused_decoder.ParallelFusedDecoderLayer\n"
    "parallel_fused_decoder.ParallelFusedDecoderLayer.self_attention = "
    "@dense_attention.MultiQueryDotProductAttention()\n"
    "parallel_fused_decoder.ParallelFusedDecoderLayer.mlp = @fused/dense.MlpBlock()\n"
    "fused/dense.MlpBlock.precomputed_intermediates = True\n"
    "dense_attention.MultiQueryDotProductAttention.num_heads = 2\n"
    "dense_attention.MultiQueryDotProductAttention.head_dim = 4\n";
const std::string kOtherScale =
    "SCALE = 0.5\n"
    "t5_architecture.EncoderLayer.attention = "
    "@other/dense_attention.MultiHeadDotProductAttention()\n"
    "t5_architecture.EncoderLayer.mlp = @other/dense.MlpBlock()\n"
    "t5_architecture.Encoder.shared_relative_position_bias_factory = "
    "@other/relative_position_biases.RelativePositionBiases\n"
    "other/dense_attention.MultiHeadDotProductAttention.kernel_init = None\n"
    "other/dense.MlpBlock.kernel_init = None\n"
    "other/relative_position_biases.RelativePositionBiases.embedding_init = None\n";
const std::string kPrecomputed = "dense.MlpBlock.precomputed_intermediates = True\n";
const std::string kOutFeatures = "dense_attention.MultiQueryDotProductAttention.out_features = 8\n";

std::string refusal(const std::string& bindings) {
  try {
    flaxformer_architecture(tiny(bindings), kDenseGin);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing is refused";
}

TEST(Flaxformer, RefusesNetworksThatAreNotThere) {
  for (const auto& [bindings, expected] : std::vector<std::pair<std::string, std::string>>{
           {kNoCross, "bind their encoder_decoder_attention"},
           {kDecoderOnly + kEmbedder, "bind encoder_decoder_attention = None"},
           {kDecoderOnly + kNoCross, "bind its token_embedder_factory"},
           {kMultiQuery, "encoder and decoder layers must have the same"},
           {kOtherScale, "initial scales of encoder and decoder differ: 1 and 0.5"},
           {kScanned, "layers are scanned = True there"},
           {"t5_architecture.DecoderLayer.scanned = True\n", "layers are scanned = False there"},
           {kScanned + kScannedLayers, "relative_position_bias_factory of the layers instead"},
           {kScanned + kScannedLayers + kEachBias, "expected what is bound of its decoder, True"},
           {kScanned + kScannedLayers + kEachBias + kScannedWhole +
                "t5_architecture.Encoder.scan_axis = 0\n",
            "of encoder and decoder must be the same"},
           {"dense_attention.MultiHeadDotProductAttention.use_rotary_embedding = True\n",
            "SCOPE/MultiHeadDotProductAttention.use_rotary_embedding = False"},
           {kDecoderOnly + kEmbedder + kNoCross + kRotary + "HEAD_DIM = 5\n", "an even head_dim"},
           {"dense_attention.MultiHeadDotProductAttention.rescale_logits = True\n",
            "ParallelFusedDecoderLayer's alone"},
           {kPrecomputed, "ParallelFusedDecoderLayer's"},
           {"dense.MlpBlock.out_dim = 9\n", "as wide as embeddings, 8; found 9"},
           {kFused + kPrecomputed, "with out_features"},
           {kFusedEncoder + kOutFeatures, "parallel_fused_decoder's layers are a decoder's"},
           {kFused + kOutFeatures, "precomputed_intermediates = True"},
           {kFused + kOutFeatures + kPrecomputed + "MLP_DIM = 15\n", "do not divide the 15"}})
    EXPECT_NE(refusal(bindings).find(expected), std::string::npos) << bindings << refusal(bindings);
}

TEST(Flaxformer, AStackIsParallelByItself) {
  const auto config = [](const std::string& bindings) {
    return gin::as<T5Module>(flaxformer_architecture(tiny(bindings), kDenseGin), {"ARCHITECTURE"})
        .config;
  };
  const T5Config encoder = config("t5_architecture.EncoderLayer.parallel = True\n");
  EXPECT_EQ(encoder.encoder.dense_layers.form, LayerForm::parallel);
  EXPECT_EQ(encoder.decoder.dense_layers, LayerKind{});
  const T5Config decoder = config("t5_architecture.DecoderLayer.parallel = True\n");
  EXPECT_EQ(decoder.decoder.dense_layers.form, LayerForm::parallel);
  EXPECT_EQ(decoder.encoder.dense_layers, LayerKind{});
}

TEST(Flaxformer, DecoderOnlyIsWhatItsFilesBind) {
  const auto module = gin::as<DecoderOnlyModule>(
      flaxformer_architecture(tiny(kDecoderOnly + kEmbedder + kNoCross + "SCALE = 0.1\n"),
                              kDenseGin),
      {"ARCHITECTURE"});
  EXPECT_EQ(module.config.num_layers, 2);
  EXPECT_EQ(module.config.vocab_size, 32);
  EXPECT_EQ(module.config.dtype, "float32");
  EXPECT_EQ(module.config.init_scale, 0.1);
  EXPECT_TRUE(module.config.masks_padding);
  EXPECT_EQ(module.config.decoder.dense_layers, LayerKind{});
  EXPECT_FALSE(module.config.multi_query);
}

TEST(Flaxformer, ScannedLayersAreThoseOfUnscannedStacks) {
  const T5Config scanned =
      gin::as<T5Module>(flaxformer_architecture(
                            tiny(kScanned + kScannedLayers + kEachBias + kScannedWhole), kDenseGin),
                        {"ARCHITECTURE"})
          .config;
  EXPECT_EQ(scanned.scalable, (ScalableLayers{.heads_apart = false}));
  const T5Config apart =
      gin::as<T5Module>(flaxformer_architecture(tiny(kEachBias), kDenseGin), {"ARCHITECTURE"})
          .config;
  std::vector<std::string> names[2];
  for (const T5Config& config : {scanned, apart}) {
    const EncoderDecoderModel model(config, {});
    for (const ParamInfo& info : model.parameters().all())
      names[config.scalable ? 0 : 1].push_back(info.name + to_string(info.spec));
  }
  EXPECT_EQ(names[0], names[1]);
}

TEST(Flaxformer, FusedLayersAreWhatTheirFilesBind) {
  const auto module = gin::as<DecoderOnlyModule>(
      flaxformer_architecture(tiny(kFused + kOutFeatures + kPrecomputed), kDenseGin),
      {"ARCHITECTURE"});
  EXPECT_EQ(module.config.decoder.dense_layers, (LayerKind{.form = LayerForm::fused}));
  EXPECT_TRUE(module.config.multi_query && module.config.scale_attn_logits);
  const DecoderOnlyModel model(module.config, {}, false);
  EXPECT_EQ(model.parameters().at("decoder/layers_0/q_wi_fused/kernel").spec.axes[1].size,
            2 * (4 + 8 + 8));
}

TEST(Flaxformer, FusedLayersAreADecodersAloneWithoutExperts) {
  T5Config both;
  both.vocab_size = 32;
  both.encoder.dense_layers.form = LayerForm::fused;
  EXPECT_THROW(EncoderDecoderModel(both, {}), Error);
  std::swap(both.encoder, both.decoder);
  EXPECT_THROW(EncoderDecoderModel(both, {}), Error);
  TransformerConfig alone;
  alone.vocab_size = 32;
  alone.multi_query = true;
  alone.decoder.dense_layers.form = LayerForm::fused;
  EXPECT_NO_THROW(DecoderOnlyModel(alone, {}, false));
  alone.decoder.sparse.num_sparse_layers = alone.num_layers;
  alone.decoder.sparse.moe.num_experts = 2;
  alone.decoder.sparse.moe.mlp_dim = 8;
  EXPECT_THROW(DecoderOnlyModel(alone, {}, false), Error);
}

TEST(Flaxformer, FusedKernelsAreNotStoredInFewerBits) {
  TransformerConfig config;
  const HostArray kernel(DType::f32, {2, 2});
  EXPECT_THROW(decoding::quantize_parameter(spec_of(config), "decoder/layers_0/kv_fused/kernel",
                                            View::of(kernel.as<float>().data(), kernel.shape),
                                            WeightType::bf16),
               Error);
}

TEST(Flaxformer, DropoutMasksOfT5xAreRefusedForOwnNetworksAndJitter) {
  TransformerConfig config;
  config.masks_padding = true;
  config.decoder.sparse.num_sparse_layers = config.num_layers;
  EXPECT_NO_THROW(check_t5x_dropout(spec_of(config)));
  ModelSpec own = spec_of(config);
  own.own_network = true;
  EXPECT_THROW(check_t5x_dropout(own), Error);
  config.decoder.sparse.moe.router.jitter_noise = 0.01;
  EXPECT_THROW(check_t5x_dropout(spec_of(config)), Error);
}

TEST(Flaxformer, MultiQueryAttentionHasNoFp8) {
  T5Config config;
  config.vocab_size = 8;
  config.num_encoder_layers = config.num_decoder_layers = 1;
  config.multi_query = true;
  EncoderDecoderModel model(config, {});
  try {
    use_fp8(model, {.enabled = true});
    FAIL() << "nothing is refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("multi-query"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace quintet::testing
