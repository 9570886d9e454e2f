#include "models/fp8.h"

#include <algorithm>
#include <cctype>

namespace quintet {
namespace {

constexpr const char* kConfig = "te_helper.TransformerEngineConfig";

/// The first kernel of layers that share their input, as models/layers.cpp calls them.
bool leads_layers(const ParamInfo& info) {
  if (info.spec.axes.size() != 2 || info.name.find("/layers_") == std::string::npos) return false;
  const bool is_cross = info.name.find("/encoder_decoder_attention/") != std::string::npos;
  for (const char* end :
       {"/query/kernel", "/out/kernel", "/wi/kernel", "/wi_0/kernel", "/wo/kernel"})
    if (info.name.ends_with(end)) return true;
  return is_cross && info.name.ends_with("/key/kernel");
}

/// It and those that share its input.
std::vector<const ParamInfo*> layers_of(const Parameters& parameters, const ParamInfo& first) {
  std::vector<const ParamInfo*> all{&first};
  const auto add = [&](std::string_view of_first, std::string_view other) {
    if (!first.name.ends_with(of_first)) return;
    std::string name = first.name;
    name.replace(name.size() - of_first.size(), of_first.size(), other);
    for (const ParamInfo& info : parameters.all())
      if (info.name == name) all.push_back(&info);
  };
  const bool is_cross = first.name.find("/encoder_decoder_attention/") != std::string::npos;
  if (!is_cross) {
    add("/query/kernel", "/key/kernel");
    add("/query/kernel", "/value/kernel");
  }
  add("/key/kernel", "/value/kernel");
  add("/wi_0/kernel", "/wi_1/kernel");
  return all;
}

}  // namespace

Fp8Recipe recipe_of(const TransformerEngineConfig& config) {
  Fp8Recipe recipe{.margin = config.margin, .amax_history_len = config.amax_history_len};
  std::string format = config.fp8_format;
  std::ranges::transform(format, format.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (format == "fp8_e4m3" || format == "fp8e4m3" || format == "e4m3")
    recipe.gradient_format = Float8::e4m3;
  else
    QT_CHECK(
        format == "fp8_hybrid" || format == "fp8hybrid" || format == "hybrid",
        "{}.fp8_format: expected 'fp8_hybrid' (E4M3, gradients E5M2) or 'fp8_e4m3', found '{}'{}",
        kConfig, config.fp8_format,
        format.ends_with("e5m2") ? "; tensor cores do not multiply E5M2 by E5M2" : "");
  QT_CHECK(config.margin >= 0 && config.margin <= 64, "{}.margin: expected 0 to 64, found {}",
           kConfig, config.margin);
  QT_CHECK(config.amax_history_len >= 1 && config.amax_history_len <= 1 << 20,
           "{}.amax_history_len: expected 1 to 1048576, found {}", kConfig,
           config.amax_history_len);
  recipe.most_recent = config.amax_compute_algo == "most_recent";
  QT_CHECK(recipe.most_recent || config.amax_compute_algo == "max",
           "{}.amax_compute_algo: expected 'max' or 'most_recent', found '{}'", kConfig,
           config.amax_compute_algo);
  recipe.current = config.scaling == "current";
  QT_CHECK(recipe.current || config.scaling == "delayed",
           "{}.scaling: expected 'delayed' or 'current', found '{}'", kConfig, config.scaling);
  return recipe;
}

Fp8Recipe use_fp8(BaseModel& model, const TransformerEngineConfig& config) {
  const Fp8Recipe recipe = recipe_of(config);
  if (!config.enabled) return recipe;
  QT_CHECK(
      !model.spec().decoder.layer.shares_kv(),
      "{}.enabled: FP8 products of one input are of equal width, which queries and the one head "
      "of multi-query attention are not; bind enabled = False",
      kConfig);
  const Device& device = Device::current();
  QT_CHECK_AS(ExitCode::kEnvironment, device.multiplies_float8(),
              "{}.enabled: {} has no FP8 tensor cores; compute capability 8.9 or newer is needed "
              "(L4, H100); bind "
              "enabled = False",
              kConfig, device.description());
  QT_CHECK(!model.spec().own_network,
           "{}.enabled: this model has a network of its own, whose products have no FP8; bind "
           "enabled = False",
           kConfig);
  bool any = false;
  for (ParamInfo& info : model.parameters().all()) {
    QT_CHECK(!info.frozen && !info.low_rank,
             "{}.enabled: adapters (lora.LoraConfig) train beside frozen kernels, which have no "
             "FP8 products; bind enabled = "
             "False, or train without adapters",
             kConfig);
    if (!leads_layers(info)) continue;
    for (const Axis& axis : info.spec.axes)
      QT_CHECK(axis.size % 16 == 0,
               "{}.enabled: {} has {} of size {}; FP8 products need multiples of 16: change the "
               "size or bind enabled = False",
               kConfig, info.name, axis.name, axis.size);
    info.fp8 = Fp8Layers{.scaling = {},
                         .gradient_format = recipe.gradient_format,
                         .fused_casts = config.fused_casts,
                         .kernels = layers_of(model.parameters(), info)};
    any = true;
  }
  QT_CHECK(any, "{}.enabled: this model has no dense layers; bind enabled = False", kConfig);
  return recipe;
}

}  // namespace quintet
