#pragma once
// Builds the model that a fixture's meta.json describes.

#include <regex>

#include "models/base_model.h"
#include "models/modules.h"
#include "runtime/configurables/configurables.h"
#include "runtime/gin/config.h"
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
  if (loss.has("aux_loss_factor")) {
    options.aux_loss_factor = loss["aux_loss_factor"].as_double();
    options.router_z_loss_factor = loss["router_z_loss_factor"].as_double();
  }
  const Json factor = loss["loss_normalizing_factor"];
  if (factor.is_number()) options.loss_normalizing_factor = factor.as_double();
  if (factor.is_string())
    options.loss_normalizing_factor = special_factor_from_name(factor.as_string());
  return options;
}

/// scalable_t5's configuration: every layer has a relative position bias.
inline bool is_scalable(const Json& config) { return config.has("scan_layers"); }
inline bool is_scanned(const Json& config) {
  if (config.has("gin"))
    return config["gin"].as_string().find("scan_layers = True") != std::string::npos;
  return is_scalable(config) && config["scan_layers"].as_bool();
}

/// Of scanned layers flaxformer supports no metrics of experts: it takes means of stacks.
inline bool is_unsound(const Json& config, const std::string& metric) {
  return is_scanned(config) && metric.starts_with("experts/");
}

/// Networks that this version does not have are skipped by the callers.
inline bool supported(const Json& config) {
  if (config.has("gin")) return true;
  return config.has("emb_dim") && (config.has("num_layers") || config.has("num_encoder_layers"));
}

constexpr const char* kMoeGin = "flaxformer/t5x/configs/moe/architectures/moe.gin";

/// The architecture that bindings on top of one of our own flaxformer files give.
inline gin::Value flaxformer_architecture(const std::string& bindings,
                                          const std::string& file = kMoeGin) {
  gin::Registry registry;
  register_runtime(registry);
  register_flaxformer(registry);
  // The checkout's, or those beside the fixtures of a bundle (scripts/gpu_bundle).
  const std::string beside = fixture_root() / "../../share/quintet/configs";
  gin::Config config(registry,
                     {.roots = {{"", QUINTET_SOURCE_DIR "/models/configs"}, {"", beside}}});
  config.parse_text(
      "from __gin__ import dynamic_registration\n"
      "from flax import linen\n"
      "from flaxformer.architectures.moe import moe_architecture\n"
      "from flaxformer.architectures.moe import moe_layers\n"
      "from flaxformer.architectures.moe import routing\n"
      "from flaxformer.architectures.t5 import parallel_fused_decoder\n"
      "from flaxformer.architectures.t5 import t5_architecture\n"
      "from flaxformer.components import dense\n"
      "from flaxformer.components import embedding\n"
      "from flaxformer.components import layer_norm\n"
      "from flaxformer.components import relative_position_biases\n"
      "from flaxformer.components.attention import dense_attention\n"
      "include '" +
          file + "'\n" + bindings,
      "fixture.gin");
  config.finalize();
  return config.evaluate("ARCHITECTURE");
}
inline T5Config read_flaxformer(const std::string& bindings, const std::string& file = kMoeGin) {
  return gin::as<T5Module>(flaxformer_architecture(bindings, file), {"ARCHITECTURE"}).config;
}

inline bool is_prefix_lm(const Json& config) {
  return config.has("inputs_bidirectional_attention") &&
         config["inputs_bidirectional_attention"].as_bool();
}

/// Of a fixture whose network is made of flaxformer's modules.
inline std::unique_ptr<BaseModel> build_flaxformer(const Json& config, const LossOptions& options,
                                                   const std::string& remat_policy) {
  const gin::Value architecture = flaxformer_architecture(
      config["gin"].as_string(), config.has("include") ? config["include"].as_string() : kMoeGin);
  if (const auto module = architecture.object_as<DecoderOnlyModule>()) {
    TransformerConfig c = module->config;
    c.remat_policy = remat_policy;
    return std::make_unique<DecoderOnlyModel>(c, options, is_prefix_lm(config));
  }
  T5Config c = gin::as<T5Module>(architecture, {"ARCHITECTURE"}).config;
  c.remat_policy = remat_policy;
  return std::make_unique<EncoderDecoderModel>(c, options);
}

inline std::unique_ptr<BaseModel> build_model(const Json& config, const LossOptions& options,
                                              const std::string& remat_policy = "none") {
  if (config.has("gin")) return build_flaxformer(config, options, remat_policy);
  if (config.has("num_layers")) {
    TransformerConfig c;
    read_layers(config, c);
    c.vocab_size = config["vocab_size"].as_int();
    c.num_layers = config["num_layers"].as_int();
    c.remat_policy = remat_policy;
    c.logits_via_embedding = config["logits_via_embedding"].as_bool();
    return std::make_unique<DecoderOnlyModel>(c, options, is_prefix_lm(config));
  }
  T5Config c;
  c.remat_policy = remat_policy;
  read_layers(config, c);
  c.vocab_size = config["vocab_size"].as_int();
  c.num_encoder_layers = config["num_encoder_layers"].as_int();
  c.num_decoder_layers = config["num_decoder_layers"].as_int();
  c.logits_via_embedding = config["logits_via_embedding"].as_bool();
  if (is_scalable(config)) {
    c.shared_relative_position_bias = false;
    c.scalable = ScalableLayers{.scan_layers = is_scanned(config)};
  }
  return std::make_unique<EncoderDecoderModel>(c, options);
}

/// Scanned stacks, "encoder/encoder/mlp/wo/kernel" [mlp, layers, embed], as an array a layer; those of blocks of
/// layers, "encoder/encoder/subblock_1/mlp/wo/kernel", likewise.
inline HostArrays layers_apart(const HostArrays& values, const Json& config) {
  if (!is_scanned(config)) return values;
  static const std::regex kStack("(.*)(encoder|decoder)/\\2/(?:subblock_([0-9])/)?(.*)");
  const auto axis = static_cast<std::ptrdiff_t>(
      config.has("param_scan_axis") ? config["param_scan_axis"].as_int() : 1);
  std::map<std::string, int64_t> blocks;  // layers of one
  std::smatch match;
  for (const auto& [name, array] : values)
    if (std::regex_match(name, match, kStack) && match[3].matched)
      blocks[match[2]] = std::max<int64_t>(blocks[match[2]], std::stoll(match[3]) + 1);
  HostArrays apart;
  for (const auto& [name, array] : values) {
    if (!std::regex_match(name, match, kStack)) {
      apart[name] = array;
      continue;
    }
    std::vector<int64_t> shape = array.shape;
    shape.erase(shape.begin() + axis);
    const int64_t layers = array.shape[static_cast<size_t>(axis)];
    int64_t inner = size_of(array.dtype);
    for (auto size = shape.begin() + axis; size != shape.end(); ++size) inner *= *size;
    for (int64_t i = 0; i < layers; ++i) {
      HostArray one(array.dtype, shape);
      for (int64_t begin = 0; begin < std::ssize(one.bytes); begin += inner)
        std::copy_n(array.bytes.begin() + begin * layers + i * inner, inner,
                    one.bytes.begin() + begin);
      const int64_t layer = match[3].matched ? i * blocks.at(match[2]) + std::stoll(match[3]) : i;
      apart[fmt::format("{}{}/layers_{}/{}", match[1].str(), match[2].str(), layer,
                        match[4].str())] = one;
    }
  }
  return apart;
}

/// Kernels [embed, heads, kv] and [heads, kv, embed] become [embed, joined_kv] and its transpose: the
/// order of elements is the same.
inline void load_joined(Parameters& parameters, HostArrays values) {
  for (const ParamInfo& info : parameters.all()) {
    if (!values.contains(info.name)) continue;  // load() says so
    HostArray& array = values.at(info.name);
    if (info.spec.axes.size() == 2 && array.shape.size() == 3)
      array.shape = {info.spec.axes[0].size, info.spec.axes[1].size};
  }
  parameters.load(values);
}

}  // namespace quintet::testing
