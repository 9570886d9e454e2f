#pragma once
// The tiny networks of fixtures/decode, with every size read from the files.

#include "models/decoding/predict.h"
#include "tests/harness/fixtures.h"

namespace quintet::testing {

inline std::filesystem::path decode_file(const std::string& name) {
  return fixture_root() / "decode" / name;
}

inline decoding::NetworkShape shape_from(const HostArrays& parameters, const Json& config) {
  decoding::NetworkShape shape;
  const bool encoder = parameters.contains("encoder/encoder_norm/scale");
  shape.vocab_size = config["vocab"].as_int();
  shape.emb_dim = config["emb"].as_int();
  shape.num_heads = config["heads"].as_int();
  shape.head_dim = config["kv"].as_int();
  shape.mlp_dim = config["mlp"].as_int();
  shape.num_encoder_layers = encoder ? config["enc"].as_int() : 0;
  shape.num_decoder_layers = config["dec"].as_int();
  shape.mlp_activations = {"gelu", "linear"};
  shape.logits_via_embedding = !parameters.contains("decoder/logits_dense/kernel");
  return shape;
}

inline decoding::ParameterSource source_of(const HostArrays& parameters) {
  return [&parameters](const std::string& name) {
    const auto found = parameters.find(name);
    QT_CHECK_AS(ExitCode::kData, found != parameters.end(), "no parameter {}", name);
    return View::of(found->second.as<float>().data(), found->second.shape);
  };
}

/// What both kinds of network are configured with.
template <class Config>
Config config_of(const decoding::NetworkShape& shape) {
  Config config;
  config.vocab_size = shape.vocab_size;
  config.emb_dim = shape.emb_dim;
  config.num_heads = shape.num_heads;
  config.head_dim = shape.head_dim;
  config.mlp_dim = shape.mlp_dim;
  config.mlp_activations = shape.mlp_activations;
  config.logits_via_embedding = shape.logits_via_embedding;
  if constexpr (std::is_same_v<Config, TransformerConfig>)
    config.num_layers = shape.num_decoder_layers;
  return config;
}

/// The encoder-decoder with these parameters, on the current device.
inline std::unique_ptr<EncoderDecoderModel> model_from(const HostArrays& parameters,
                                                       const Json& config,
                                                       const std::string& dtype = "float32") {
  const decoding::NetworkShape shape = shape_from(parameters, config);
  auto t5 = config_of<T5Config>(shape);
  t5.dtype = dtype;
  t5.num_encoder_layers = shape.num_encoder_layers;
  t5.num_decoder_layers = shape.num_decoder_layers;
  auto model = std::make_unique<EncoderDecoderModel>(t5, LossOptions{});
  model->parameters().load(parameters);
  return model;
}

/// The decoder without encoder that has these parameters, likewise.
inline std::unique_ptr<DecoderOnlyModel> decoder_only_from(const HostArrays& parameters,
                                                           const Json& config, bool bidirectional) {
  auto model = std::make_unique<DecoderOnlyModel>(
      config_of<TransformerConfig>(shape_from(parameters, config)), LossOptions{}, bidirectional);
  model->parameters().load(parameters);
  return model;
}

}  // namespace quintet::testing
