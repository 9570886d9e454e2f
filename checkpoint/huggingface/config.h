#pragma once
// config.json of a Hugging Face directory of the T5 family, as transformers understands it.
//
//   const Config config = read_config("/models/flan-t5-small");
//   config.d_model;   // 512

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quintet {
class Json;
}

namespace quintet::huggingface {

inline constexpr int64_t kEveryToken = 1 << 20;  // an expert_capacity that no sequence reaches

/// The fields that decide what the network computes; names and defaults are transformers'.
struct Config {
  std::string model_type;    // t5, mt5, umt5, switch_transformers
  std::string architecture;  // T5ForConditionalGeneration, ...
  int64_t vocab_size = 0, d_model = 512, d_kv = 64, d_ff = 2048, num_heads = 8;
  int64_t num_layers = 6, num_decoder_layers = 6;
  int64_t num_buckets = 32, max_distance = 128;  // of the relative position bias
  double dropout_rate = 0.1;
  std::string activation = "relu";  // our name: relu, gelu (the tanh form), gelu_erf, silu, linear
  bool gated = false;
  bool tie_word_embeddings = true;
  bool scale_decoder_outputs = true;  // logits are divided by sqrt(d_model)
  bool separate_embeddings = false;   // not of config.json: the weights' tables differ
  std::vector<int64_t> eos_token_ids = {1};
  // Switch Transformers:
  int64_t num_experts = 0, num_sparse_encoder_layers = 0, num_sparse_decoder_layers = 0;
  double router_jitter_noise = 0;
  bool router_bias = false;
  int64_t expert_capacity = kEveryToken;  // tokens of a sequence that an expert serves

  bool is_switch() const { return model_type == "switch_transformers"; }
  /// T5EncoderModel and its like: no decoder.
  bool encoder_only() const { return num_decoder_layers == 0; }
  /// Each layer has a table of relative position biases of its own.
  bool bias_in_each_layer() const { return model_type == "umt5"; }
  /// transformers': one layer in so many has experts, or 0: none has.
  int64_t sparse_step(bool encoder) const;
  /// Whether the MLP of layer i is a mixture of experts: the second of each step.
  bool is_sparse(bool encoder, int64_t i) const;
};

/// Whether the folder is a Hugging Face directory: config.json with a model_type or architectures.
/// Throws ExitCode::kData if there is a config.json that is no JSON.
bool is_directory(const std::filesystem::path& folder);

/// Throws ExitCode::kData naming the file and the field: a model that is not of this family (with the
/// list of those that are), a value that this network does not have, a field of a wrong type or one that
/// is not known.
Config read_config(const std::filesystem::path& folder);
Config parse_config(const Json& json);

/// A field that has no effect here, and why: docs list them.
struct WithoutEffect {
  std::string_view field, reason;
};
std::span<const WithoutEffect> fields_without_effect();

}  // namespace quintet::huggingface
