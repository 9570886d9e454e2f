#include "checkpoint/huggingface/config_text.h"

#include <nlohmann/json.hpp>

#include "runtime/base/check.h"

namespace quintet::huggingface {
namespace {

std::string class_prefix(const Config& c) {
  if (c.model_type == "mt5") return "MT5";
  if (c.model_type == "umt5") return "UMT5";
  return c.is_switch() ? "SwitchTransformers" : "T5";
}

std::string architecture(const Config& c) {
  return class_prefix(c) + (c.encoder_only() ? "EncoderModel" : "ForConditionalGeneration");
}

void add_activation(const Config& c, nlohmann::json& json) {
  const std::string name = c.activation == "gelu"       ? "gelu_new"
                           : c.activation == "gelu_erf" ? "gelu"
                                                        : c.activation;
  json["dense_act_fn"] = name;
  json["is_gated_act"] = c.gated;
  // "gated-gelu" is transformers' name for gelu_new; dense_act_fn says otherwise for the exact one.
  json["feed_forward_proj"] = !c.gated ? name : name == "gelu_new" ? "gated-gelu" : "gated-" + name;
}

void add_experts(const Config& c, nlohmann::json& json) {
  json["num_experts"] = c.num_experts;
  json["num_sparse_encoder_layers"] = c.num_sparse_encoder_layers;
  json["num_sparse_decoder_layers"] = c.num_sparse_decoder_layers;
  json["encoder_sparse_step"] =
      c.num_sparse_encoder_layers > 0 ? c.num_layers / c.num_sparse_encoder_layers : 0;
  json["decoder_sparse_step"] =
      c.num_sparse_decoder_layers > 0 ? c.num_decoder_layers / c.num_sparse_decoder_layers : 0;
  json["expert_capacity"] = c.expert_capacity;
  json["router_bias"] = c.router_bias;
  json["router_jitter_noise"] = c.router_jitter_noise;
  json["router_dtype"] = "float32";
  json["router_ignore_padding_tokens"] = false;
}

}  // namespace

std::string config_text(const Config& c, DType weights) {
  nlohmann::json json = {
      {"architectures", {architecture(c)}},
      {"model_type", c.model_type},
      {"vocab_size", c.vocab_size},
      {"d_model", c.d_model},
      {"d_kv", c.d_kv},
      {"d_ff", c.d_ff},
      {"num_heads", c.num_heads},
      {"num_layers", c.num_layers},
      {"num_decoder_layers", c.encoder_only() ? c.num_layers : c.num_decoder_layers},
      {"relative_attention_num_buckets", c.num_buckets},
      {"relative_attention_max_distance", c.max_distance},
      {"dropout_rate", c.dropout_rate},
      {"layer_norm_epsilon", 1e-6},
      {"initializer_factor", 1.0},
      {"tie_word_embeddings", c.tie_word_embeddings},
      {"scale_decoder_outputs", c.scale_decoder_outputs},
      {"is_encoder_decoder", !c.encoder_only()},
      {"use_cache", true},
      {"pad_token_id", 0},
      {"decoder_start_token_id", 0},
      {"n_positions", 512},  // without effect; converters take it for the longest input
      {"torch_dtype", name_of(weights)}};
  if (c.eos_token_ids.size() == 1)
    json["eos_token_id"] = c.eos_token_ids.front();
  else
    json["eos_token_id"] = c.eos_token_ids;
  add_activation(c, json);
  if (c.is_switch()) add_experts(c, json);
  return json.dump(2) + "\n";
}

}  // namespace quintet::huggingface
