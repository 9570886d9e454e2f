#include "apps/config/decoding_config.h"

#include "apps/config/decoding/process_decoding.h"
#include "apps/config/ineffective.h"
#include "data/configurables/configurables.h"

namespace quintet {

using decoding::BeamOptions;
using decoding::DecodeFn;
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

SampleOptions sample_options(const gin::Arguments& args, int64_t num_decodes,
                             const ConfiguredModel& model) {
  SampleOptions options;
  options.num_decodes = num_decodes;
  options.temperature = {args.get<float>("temperature")};
  options.topk = args.get<int64_t>("topk");
  options.topp = args.get<float>("topp");
  options.max_decode_steps = args.get<std::optional<int64_t>>("max_decode_steps");
  options.max_decode_steps_hard_limit =
      args.get<std::optional<int64_t>>("max_decode_steps_hard_limit");
  options.rescale_log_probs = args.get<bool>("rescale_log_probs");
  const auto own = [&](const char* parameter) -> data::WorkersPtr {
    const gin::Value value = args.value(parameter);
    return value.is_none() ? nullptr : data::own_process(value, args.where(parameter), "None");
  };
  if (auto workers = own("state_callback_fn"))
    options.state_callback_fn =
        process_state_callback(std::move(workers), model.model->spec().vocab_size);
  if (auto workers = own("logit_callback_fn"))
    options.logit_callback_fn = process_logit_callback(std::move(workers));
  return options;
}

}  // namespace

std::shared_ptr<ConfiguredModel> configured_model(const gin::Arguments& args) {
  auto model = args.get<std::shared_ptr<ConfiguredModel>>("model");
  warn_of_dtype(*model);
  return model;
}

DecodeFn configured_decode_fn(const ConfiguredModel& model, bool decoder_only) {
  std::string name = decoder_only ? kTemperatureSample : kBeamSearch, scoped_name = name;
  data::WorkersPtr own;
  const auto* callable = model.decode_fn.get_if<gin::Callable>();
  if (callable != nullptr &&
      (callable->name() == kBeamSearch || callable->name() == kTemperatureSample))
    name = callable->name(), scoped_name = callable->scoped_name();
  else if (!model.decode_fn.is_none())
    own = data::own_process(model.decode_fn, {model.name + ".decode_fn"},
                            "@decoding.beam_search, @decoding.temperature_sample");
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
  if (own != nullptr) {
    QT_CHECK(decoder_params.empty(), "{}.decoder_params: a decode function of your own takes none",
             method_name);
    return process_decode_fn(std::move(own), num_decodes);
  }
  if (model.config == nullptr)
    return decoder_only ? DecodeFn(SampleOptions{}) : BeamOptions{.num_decodes = 1};
  const gin::Arguments args = model.config->arguments(scoped_name, std::move(decoder_params));
  if (name == kBeamSearch) return beam_options(args, num_decodes);
  return sample_options(args, num_decodes, model);
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
