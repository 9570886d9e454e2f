#pragma once
// The tiny networks of fixtures/decode, with every size read from the files.

#include "models/decoding/predict.h"
#include "tests/harness/fixtures.h"

namespace quintet::testing {

inline std::filesystem::path decode_file(const std::string& name) {
  return fixture_root() / "decode" / name;
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
Config config_from(const HostArrays& parameters, const Json& config) {
  Config c;
  c.vocab_size = config["vocab"].as_int();
  c.emb_dim = config["emb"].as_int();
  c.num_heads = config["heads"].as_int();
  c.head_dim = config["kv"].as_int();
  c.mlp_dim = config["mlp"].as_int();
  c.mlp_activations = {"gelu", "linear"};
  c.logits_via_embedding = !parameters.contains("decoder/logits_dense/kernel");
  if constexpr (std::is_same_v<Config, TransformerConfig>) {
    c.num_layers = config["dec"].as_int();
  } else {
    c.num_encoder_layers = config["enc"].as_int();
    c.num_decoder_layers = config["dec"].as_int();
  }
  return c;
}

inline ModelSpec spec_from(const HostArrays& parameters, const Json& config) {
  if (parameters.contains("encoder/encoder_norm/scale"))
    return spec_of(config_from<T5Config>(parameters, config));
  return spec_of(config_from<TransformerConfig>(parameters, config));
}

/// The encoder-decoder with these parameters, on the current device.
inline std::unique_ptr<EncoderDecoderModel> model_from(const HostArrays& parameters,
                                                       const Json& config,
                                                       const std::string& dtype = "float32") {
  auto t5 = config_from<T5Config>(parameters, config);
  t5.dtype = dtype;
  auto model = std::make_unique<EncoderDecoderModel>(t5, LossOptions{});
  model->parameters().load(parameters);
  return model;
}

/// The decoder without encoder that has these parameters, likewise.
inline std::unique_ptr<DecoderOnlyModel> decoder_only_from(const HostArrays& parameters,
                                                           const Json& config, bool bidirectional) {
  auto model = std::make_unique<DecoderOnlyModel>(
      config_from<TransformerConfig>(parameters, config), LossOptions{}, bidirectional);
  model->parameters().load(parameters);
  return model;
}

}  // namespace quintet::testing
