#pragma once
// A Hugging Face T5 model directory as a PackedNetwork: names and transposes.

#include <map>

#include "models/decoding/cpu/packed_network.h"
#include "models/network.h"
#include "tests/harness/fixtures.h"

namespace quintet::testing {

inline ModelSpec hf_spec(const Json& config) {
  T5Config c;
  c.vocab_size = config["vocab_size"].as_int();
  c.emb_dim = config["d_model"].as_int();
  c.num_heads = config["num_heads"].as_int();
  c.head_dim = config["d_kv"].as_int();
  c.mlp_dim = config["d_ff"].as_int();
  c.num_encoder_layers = config["num_layers"].as_int();
  c.num_decoder_layers = config["num_decoder_layers"].as_int();
  c.num_buckets = config["relative_attention_num_buckets"].as_int();
  c.max_distance = config["relative_attention_max_distance"].as_int();
  c.logits_via_embedding = config["tie_word_embeddings"].as_bool();
  const std::string form = config["feed_forward_proj"].as_string();
  c.mlp_activations = {form.substr(form.find('-') + 1)};
  if (form.starts_with("gated-")) c.mlp_activations.push_back("linear");
  return spec_of(c);
}

/// T5X's name of a parameter, in Hugging Face's.
inline std::string hf_name(const std::string& name) {
  static const std::map<std::string, std::string> fixed{
      {"token_embedder/embedding", "shared.weight"},
      {"decoder/logits_dense/kernel", "lm_head.weight"},
      {"encoder/encoder_norm/scale", "encoder.final_layer_norm.weight"},
      {"decoder/decoder_norm/scale", "decoder.final_layer_norm.weight"}};
  if (const auto found = fixed.find(name); found != fixed.end()) return found->second;
  const std::string stack = name.substr(0, 7);
  const std::string block = stack + ".block.";
  if (name.ends_with("relpos_bias/rel_embedding"))
    return block + "0.layer.0.SelfAttention.relative_attention_bias.weight";
  const size_t number = name.find('_') + 1, slash = name.find('/', number);
  const std::string layer = block + name.substr(number, slash - number) + ".layer.";
  const std::string part = name.substr(slash + 1), mlp = stack == "encoder" ? "1." : "2.";
  static const std::map<std::string, std::string> parts{
      {"query", "q"}, {"key", "k"}, {"value", "v"}, {"out", "o"}};
  if (part.starts_with("pre_mlp")) return layer + mlp + "layer_norm.weight";
  if (part.starts_with("pre_cross")) return layer + "1.layer_norm.weight";
  if (part.starts_with("pre_")) return layer + "0.layer_norm.weight";
  const size_t first = part.find('/') + 1;
  const std::string matrix = part.substr(first, part.find('/', first) - first);
  if (part.starts_with("mlp/")) return layer + mlp + "DenseReluDense." + matrix + ".weight";
  const bool cross = part.starts_with("encoder_decoder");
  return layer + (cross ? "1.EncDecAttention." : "0.SelfAttention.") + parts.at(matrix) + ".weight";
}

inline decoding::PackedNetwork hf_network(const std::filesystem::path& folder,
                                          WeightType weights = WeightType::f32) {
  const ModelSpec spec = hf_spec(Json::read(folder / "config.json"));
  const HostArrays arrays = read_safetensors(folder / "model.safetensors");
  std::vector<float> turned;
  return {spec,
          [&](const std::string& name) {
            const std::string hf = hf_name(name);
            const auto found = arrays.find(hf);
            QT_CHECK_AS(ExitCode::kData, found != arrays.end(), "no parameter {} for {}", hf, name);
            const HostArray& array = found->second;
            const auto values = array.as<float>();
            if (array.shape.size() < 2 || name == "token_embedder/embedding")
              return View::of(values.data(), array.shape);
            const int64_t n = array.shape[0], k = array.shape[1];
            turned.resize(values.size());
            for (int64_t i = 0; i < n; ++i)
              for (int64_t j = 0; j < k; ++j)
                turned[static_cast<size_t>(j * n + i)] = values[static_cast<size_t>(i * k + j)];
            const int64_t sizes[] = {k, n};
            return View::of(std::as_const(turned).data(), sizes);
          },
          weights};
}

}  // namespace quintet::testing
