#include "apps/config/decoding_config.h"

#include "apps/config/ineffective.h"
#include "models/decoding/predict.h"

namespace quintet {

using decoding::BeamOptions;
using decoding::SampleOptions;

namespace {

constexpr const char* kBeamSearch = "t5x.decoding.beam_search";
constexpr const char* kTemperatureSample = "t5x.decoding.temperature_sample";

BeamOptions beam_options(const gin::Arguments& args, int64_t num_decodes) {
  BeamOptions options;
  options.num_decodes = num_decodes;
  options.alpha = args.get<float>("alpha");
  options.max_decode_len = args.get<std::optional<int64_t>>("max_decode_len");
  options.max_decode_step = args.get<int64_t>("max_decode_step");
  options.min_log_prob = args.get<float>("min_log_prob");
  return options;
}

SampleOptions sample_options(const gin::Arguments& args, int64_t num_decodes) {
  SampleOptions options;
  options.num_decodes = num_decodes;
  options.temperature = {args.get<float>("temperature")};
  options.topk = args.get<int64_t>("topk");
  options.topp = args.get<float>("topp");
  options.max_decode_steps = args.get<std::optional<int64_t>>("max_decode_steps");
  options.max_decode_steps_hard_limit =
      args.get<std::optional<int64_t>>("max_decode_steps_hard_limit");
  options.rescale_log_probs = args.get<bool>("rescale_log_probs");
  return options;
}

}  // namespace

std::shared_ptr<ConfiguredModel> configured_model(const gin::Arguments& args) {
  auto model = args.get<std::shared_ptr<ConfiguredModel>>("model");
  warn_of_dtype(*model);
  return model;
}

std::variant<BeamOptions, SampleOptions> configured_decode_fn(const ConfiguredModel& model,
                                                              bool decoder_only) {
  std::string name = decoder_only ? kTemperatureSample : kBeamSearch;
  if (!model.decode_fn.is_none())
    name = gin::as<gin::Callable>(model.decode_fn, {model.name + ".decode_fn"}).name();
  int64_t num_decodes = 1;
  gin::Callable::Named decoder_params;  // win over what is bound to the decode function
  const std::string method_name = model.name + ".predict_batch_with_aux";
  if (model.config != nullptr) {
    const gin::Arguments method = model.config->arguments(method_name);
    num_decodes = method.get<std::optional<int64_t>>("num_decodes")
                      .value_or(model.default_decoder_params.num_decodes);
    using Params = std::optional<std::map<std::string, gin::Value>>;
    for (const auto& [param, value] :
         method.get<Params>("decoder_params").value_or(Params::value_type{})) {
      QT_CHECK(param != "num_decodes",
               "{}: 'num_decodes' is given by num_decodes of {} itself; bind that",
               method.where("decoder_params").text, method_name);
      decoder_params.emplace_back(param, value);
    }
  }
  QT_CHECK(name == kBeamSearch || name == kTemperatureSample,
           "{}.decode_fn: {} is not a decode function; use @decoding.beam_search or "
           "@decoding.temperature_sample",
           model.name, name);
  if (model.config == nullptr)
    return decoder_only ? std::variant<BeamOptions, SampleOptions>(SampleOptions{})
                        : BeamOptions{.num_decodes = 1};
  const gin::Arguments args = model.config->arguments(name, std::move(decoder_params));
  if (name == kBeamSearch) return beam_options(args, num_decodes);
  return sample_options(args, num_decodes);
}

void register_decoding(gin::Registry& registry) {
  // Only their parameters matter: a Predictor reads them and runs the search itself.
  const auto not_called = [](const gin::Arguments& args) -> gin::Value {
    fail(ExitCode::kUsage, "{} is used as @{} without ()", args.target().name, args.target().name);
  };
  const gin::Value none;
  registry.add(kBeamSearch,
               {{"num_decodes", false, std::nullopt},
                {"alpha", 0.6},
                {"max_decode_len", none},
                {"max_decode_step", -1},
                {"min_log_prob", -1.0e7},
                {"cache_offset", 0}},
               not_called);
  registry.add(kTemperatureSample,
               {{"num_decodes", false, std::nullopt},
                {"temperature", 1.0},
                {"topk", 1},
                {"topp", 0.0},
                {"cache_offset", 0},
                {"max_decode_steps", none},
                {"max_decode_steps_hard_limit", none},
                {"rescale_log_probs", true},
                {"state_callback_fn", none},
                {"logit_callback_fn", none}},
               not_called);
}

}  // namespace quintet
