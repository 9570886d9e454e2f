#include "models/configurables.h"

#include "models/fp8.h"
#include "models/modules.h"

namespace quintet {
namespace {

/// The fields that all network configurations share, and those T5X has that change nothing here.
template <typename Config>
void add_common(gin::StructParams<Config> config) {
  config.required("vocab_size", &Config::vocab_size)
      .arg("dtype", &Config::dtype)
      .arg("emb_dim", &Config::emb_dim)
      .arg("num_heads", &Config::num_heads)
      .arg("head_dim", &Config::head_dim)
      .arg("mlp_dim", &Config::mlp_dim)
      .arg("mlp_activations", &Config::mlp_activations)
      .arg("num_buckets", &Config::num_buckets)
      .arg("max_distance", &Config::max_distance)
      .arg("dropout_rate", &Config::dropout_rate)
      .arg("logits_via_embedding", &Config::logits_via_embedding)
      .accepted("float32_attention_logits", false)
      .arg("remat_policy", &Config::remat_policy)
      .check([](const Config& c) { quintet::check(c); });
}

LossNormalizingFactor factor_from(const gin::Value& value, const gin::Where& where) {
  if (value.is_none()) return {};
  if (const auto* name = value.get_if<std::string>()) return special_factor_from_name(*name);
  return gin::as<double>(value, where);
}

}  // namespace

LossOptions loss_options(const gin::Arguments& args) {
  return {.label_smoothing = args.get<double>("label_smoothing"),
          .z_loss = args.get<double>("z_loss"),
          .loss_normalizing_factor = factor_from(args.value("loss_normalizing_factor"),
                                                 args.where("loss_normalizing_factor")),
          .aux_loss_factor = args.get_or<double>("aux_loss_factor", 0),
          .router_z_loss_factor = args.get_or<double>("router_z_loss_factor", 0)};
}

std::shared_ptr<ConfiguredModel> configured(const gin::Arguments& args,
                                            std::shared_ptr<BaseModel> model,
                                            const std::string& input, const std::string& output) {
  auto result = std::make_shared<ConfiguredModel>();
  result->model = std::move(model);
  result->input_vocabulary = args.value(input);
  result->output_vocabulary = args.value(output);
  result->optimizer = args.get<std::optional<OptimizerPtr>>("optimizer_def").value_or(nullptr);
  result->lora = args.get<std::optional<LoraConfig>>("lora");
  result->optimizer_where = args.where("optimizer_def").text;
  result->decode_fn = args.value("decode_fn");
  result->feature_converter_cls = args.value("feature_converter_cls");
  result->name = args.target().name;
  result->config = &args.config();
  return result;
}

std::vector<gin::Param> with_shared(std::vector<gin::Param> own) {
  const std::vector<gin::Param> shared = {
      {"optimizer_def"},        {"decode_fn", nullptr}, {"feature_converter_cls", nullptr},
      {"label_smoothing", 0.0}, {"z_loss", 0.0},        {"loss_normalizing_factor", nullptr},
      {"lora", nullptr}};
  own.insert(own.end(), shared.begin(), shared.end());
  return own;
}

void add_model_methods(gin::Registry& registry, const std::string& model) {
  std::vector<gin::Param> predict = {
      {"num_decodes", nullptr}, {"return_all_decodes", nullptr}, {"decoder_params", nullptr}};
  if (!model.ends_with("DecoderOnlyModel")) predict.emplace_back("prompt_with_targets", false);
  registry.add_method(model + ".predict_batch_with_aux", predict);
  registry.add_method(model + ".score_batch", {{"return_intermediates", false}});
}

namespace {

/// scalable_t5's, which umT5 has too.
struct ScalableT5Config : T5Config, ScalableLayers {};

T5Module scalable_network(ScalableT5Config config) {
  QT_CHECK(config.param_scan_axis == 0 || config.param_scan_axis == 1,
           "T5Config.param_scan_axis: expected 0 or 1, found {}", config.param_scan_axis);
  config.scalable = static_cast<const ScalableLayers&>(config);
  config.shared_relative_position_bias = false;
  return {config};
}

void add_networks(gin::Registry& registry) {
  const auto add = [&]<typename Config>(const std::string& module, T5Module (*network)(Config)) {
    auto config = registry.add_struct<Config>(module + ".T5Config");
    add_common(config);
    config.arg("num_encoder_layers", &T5Config::num_encoder_layers)
        .arg("num_decoder_layers", &T5Config::num_decoder_layers);
    registry.add_function(module + ".Transformer", network, {{"config"}});
    return config;
  };
  T5Module (*const t5)(T5Config) = [](T5Config config) { return T5Module{std::move(config)}; };
  add("t5x.examples.t5.network", t5);
  add("t5x.contrib.gpu.t5.network", t5).arg("scale_attn_logits", &T5Config::scale_attn_logits);
  add("t5x.examples.scalable_t5.network", &scalable_network)
      .arg("scan_layers", &ScalableLayers::scan_layers)
      .arg("param_scan_axis", &ScalableLayers::param_scan_axis);
  const std::string module = "t5x.examples.decoder_only.network";
  auto config = registry.add_struct<TransformerConfig>(module + ".TransformerConfig");
  add_common(config);
  config.arg("num_layers", &TransformerConfig::num_layers);
  registry.add_function(module + ".DecoderWrapper",
                        [](const TransformerConfig& c) { return DecoderOnlyModule{c}; },
                        {{"config"}});
}

gin::Value decoder_only_model(const gin::Arguments& args) {
  auto model = std::make_shared<DecoderOnlyModel>(args.get<DecoderOnlyModule>("module").config,
                                                  loss_options(args),
                                                  args.get<bool>("inputs_bidirectional_attention"));
  return gin::Value::object(configured(args, model, "vocabulary", "vocabulary"));
}

gin::Value encoder_decoder_model(const gin::Arguments& args) {
  auto model = std::make_shared<EncoderDecoderModel>(args.get<T5Module>("module").config,
                                                     loss_options(args));
  return gin::Value::object(configured(args, model, "input_vocabulary", "output_vocabulary"));
}

}  // namespace

const OptimizerPtr& ConfiguredModel::optimizer_to_train() const {
  QT_CHECK(optimizer != nullptr,
           "{}: expected an optimizer such as @adafactor.Adafactor(), found None", optimizer_where);
  return optimizer;
}

void ConfiguredModel::prepare_to_train() const {
  if (lora) add_adapters(*model, *lora);
}

void register_models(gin::Registry& registry) {
  registry.add_struct<LoraConfig>("quintet.lora.LoraConfig")
      .arg("rank", &LoraConfig::rank)
      .arg("alpha", &LoraConfig::alpha)
      .arg("dropout_rate", &LoraConfig::dropout_rate)
      .arg("targets", &LoraConfig::targets)
      .arg("base_dtype", &LoraConfig::base_dtype);
  registry.add_struct<TransformerEngineConfig>("t5x.te_helper.TransformerEngineConfig")
      .arg("enabled", &TransformerEngineConfig::enabled)
      .arg("fp8_format", &TransformerEngineConfig::fp8_format)
      .arg("margin", &TransformerEngineConfig::margin)
      .arg("amax_history_len", &TransformerEngineConfig::amax_history_len)
      .arg("amax_compute_algo", &TransformerEngineConfig::amax_compute_algo)
      .arg("scaling", &TransformerEngineConfig::scaling)
      .arg("fused_casts", &TransformerEngineConfig::fused_casts);
  add_networks(registry);
  register_flaxformer(registry);
  std::vector<gin::Param> params =
      with_shared({{"module"}, {"input_vocabulary"}, {"output_vocabulary"}});
  registry.add_struct<DecoderParams>("t5x.models.DecoderParams")
      .arg("return_all_decodes", &DecoderParams::return_all_decodes)
      .arg("num_decodes", &DecoderParams::num_decodes);
  std::vector<gin::Param> with_defaults = params;
  with_defaults.emplace_back("default_decoder_params", nullptr);
  registry.add("t5x.models.EncoderDecoderModel", with_defaults, [](const gin::Arguments& args) {
    const gin::Value model = encoder_decoder_model(args);
    model.object_as<ConfiguredModel>()->default_decoder_params =
        args.get<std::optional<DecoderParams>>("default_decoder_params").value_or(DecoderParams{});
    return model;
  });
  std::vector<gin::Param> decoder_only =
      with_shared({{"module"}, {"vocabulary"}, {"inputs_bidirectional_attention", false}});
  registry.add("t5x.models.DecoderOnlyModel", decoder_only, decoder_only_model);
  for (const char* factor : {"aux_loss_factor", "router_z_loss_factor"})
    for (std::vector<gin::Param>* of : {&params, &decoder_only}) of->emplace_back(factor, 0.0);
  registry.add("t5x.contrib.moe.models.MoeEncoderDecoderModel", params, encoder_decoder_model);
  registry.add("t5x.contrib.moe.models.MoeDecoderOnlyModel", decoder_only, decoder_only_model);
  for (const std::string model : {"t5x.models.EncoderDecoderModel", "t5x.models.DecoderOnlyModel",
                                  "t5x.contrib.moe.models.MoeEncoderDecoderModel",
                                  "t5x.contrib.moe.models.MoeDecoderOnlyModel"})
    add_model_methods(registry, model);
  for (const std::string which : {"input", "output"})
    registry.add("t5x.models.get_" + which + "_vocabulary", {{"model"}},
                 [which](const gin::Arguments& args) -> gin::Value {
                   const auto model = args.get<std::shared_ptr<ConfiguredModel>>("model");
                   return which == "input" ? model->input_vocabulary : model->output_vocabulary;
                 });
}

}  // namespace quintet
