#pragma once
// Builds the model that a fixture's meta.json describes.

#include "models/base_model.h"
#include "tests/harness/fixtures.h"

namespace quintet::testing {

inline void read_layers(const Json& config, LayerConfig& out) {
  out.emb_dim = config["emb_dim"].as_int();
  out.num_heads = config["num_heads"].as_int();
  out.head_dim = config["head_dim"].as_int();
  out.mlp_dim = config["mlp_dim"].as_int();
  out.mlp_activations = config["mlp_activations"].as_strings();
  out.dropout_rate = config["dropout_rate"].as_double();
}

inline LossOptions read_loss(const Json& loss) {
  LossOptions options{.label_smoothing = loss["label_smoothing"].as_double(),
                      .z_loss = loss["z_loss"].as_double(),
                      .loss_normalizing_factor = {}};
  const Json factor = loss["loss_normalizing_factor"];
  if (factor.is_number()) options.loss_normalizing_factor = factor.as_double();
  if (factor.is_string())
    options.loss_normalizing_factor = special_factor_from_name(factor.as_string());
  return options;
}

/// Networks that this version does not have are skipped by the callers.
inline bool supported(const Json& config) {
  return config.has("emb_dim") && !config.has("scan_layers") &&
         (config.has("num_layers") || config.has("num_encoder_layers"));
}

inline std::unique_ptr<BaseModel> build_model(const Json& config, const LossOptions& options) {
  if (config.has("num_layers")) {
    TransformerConfig c;
    read_layers(config, c);
    c.vocab_size = config["vocab_size"].as_int();
    c.num_layers = config["num_layers"].as_int();
    c.logits_via_embedding = config["logits_via_embedding"].as_bool();
    const bool prefix = config.has("inputs_bidirectional_attention") &&
                        config["inputs_bidirectional_attention"].as_bool();
    return std::make_unique<DecoderOnlyModel>(c, options, prefix);
  }
  T5Config c;
  read_layers(config, c);
  c.vocab_size = config["vocab_size"].as_int();
  c.num_encoder_layers = config["num_encoder_layers"].as_int();
  c.num_decoder_layers = config["num_decoder_layers"].as_int();
  c.logits_via_embedding = config["logits_via_embedding"].as_bool();
  return std::make_unique<EncoderDecoderModel>(c, options);
}

}  // namespace quintet::testing
