#include "apps/model/predictor.h"

#include "data/vocabulary.h"
#include "runtime/base/memory.h"

namespace quintet {
namespace {

using decoding::BeamOptions;
using decoding::SampleOptions;

constexpr const char* kBeamSearch = "t5x.decoding.beam_search";
constexpr const char* kTemperatureSample = "t5x.decoding.temperature_sample";

/// An encoder with experts routes a whole batch, as in evaluation; a dense one is packed.
decoding::EncoderFunction encoder_of(const BaseModel& model) {
  if (!model.spec().encoder_has_experts()) return {};
  return [&model](std::span<const int32_t> tokens, int64_t batch, int64_t length) {
    HostArray inputs(DType::i32, {batch, length});
    std::copy(tokens.begin(), tokens.end(), inputs.as<int32_t>().begin());
    const HostArray encoded =
        model.encode({{"encoder_input_tokens", inputs}}, {0, batch}, {.dropless = true}).to_host();
    if (encoded.dtype == DType::f32)
      return std::vector<float>(encoded.as<float>().begin(), encoded.as<float>().end());
    std::vector<float> wide;
    for (const bfloat16 x : encoded.as<bfloat16>()) wide.push_back(static_cast<float>(x));
    return wide;
  };
}

BeamOptions beam_options(const gin::Arguments& args, int64_t num_decodes) {
  BeamOptions options;
  options.num_decodes = args.get_or<int64_t>("num_decodes", num_decodes);
  options.alpha = args.get<float>("alpha");
  options.max_decode_len = args.get<std::optional<int64_t>>("max_decode_len");
  options.max_decode_step = args.get<int64_t>("max_decode_step");
  options.min_log_prob = args.get<float>("min_log_prob");
  return options;
}

SampleOptions sample_options(const gin::Arguments& args, int64_t num_decodes) {
  SampleOptions options;
  options.num_decodes = args.get_or<int64_t>("num_decodes", num_decodes);
  options.temperature = {args.get<float>("temperature")};
  options.topk = args.get<int64_t>("topk");
  options.topp = args.get<float>("topp");
  options.max_decode_steps = args.get<std::optional<int64_t>>("max_decode_steps");
  options.max_decode_steps_hard_limit =
      args.get<std::optional<int64_t>>("max_decode_steps_hard_limit");
  options.rescale_log_probs = args.get<bool>("rescale_log_probs");
  return options;
}

/// The decode function of the gin files, or T5X's default for this kind of model.
std::variant<BeamOptions, SampleOptions> configured_decode_fn(const ConfiguredModel& model,
                                                              bool decoder_only) {
  std::string name = decoder_only ? kTemperatureSample : kBeamSearch;
  if (const auto* callable = model.decode_fn.get_if<gin::Callable>()) name = callable->name();
  int64_t num_decodes = 1;
  if (model.config != nullptr) {
    const gin::Arguments method = model.config->arguments(model.name + ".predict_batch_with_aux");
    num_decodes = method.get<std::optional<int64_t>>("num_decodes").value_or(1);
  }
  QT_CHECK(name == kBeamSearch || name == kTemperatureSample,
           "{}.decode_fn: {} is not a decode function; use @decoding.beam_search or "
           "@decoding.temperature_sample",
           model.name, name);
  if (model.config == nullptr)
    return decoder_only ? std::variant<BeamOptions, SampleOptions>(SampleOptions{})
                        : BeamOptions{.num_decodes = 1};
  const gin::Arguments args = model.config->arguments(name);
  if (name == kBeamSearch) return beam_options(args, num_decodes);
  return sample_options(args, num_decodes);
}

int32_t eos_of(const ConfiguredModel& model) {
  const auto vocabulary = model.output_vocabulary.object_as<const data::Vocabulary>();
  return vocabulary == nullptr ? 1 : vocabulary->eos_id().value_or(1);
}

}  // namespace

namespace {

/// Float32 parameters, or a quantized checkpoint's.
decoding::ParameterSource parameters_of(const BaseModel& model, const Weights& weights) {
  if (weights.quantized) return source_of(weights.quantized);
  return [&model, copy = std::make_shared<HostArray>()](const std::string& name) {
    const Tensor& value = model.parameters().at(name).value;
    View view = value.local();
    if (!value.device().is_cpu()) {
      *copy = value.to_host();
      view.pointer = copy->bytes.data();
    }
    return view;
  };
}

}  // namespace

std::unique_ptr<decoding::PackedNetwork> pack(const BaseModel& model, const Weights& weights) {
  return std::make_unique<decoding::PackedNetwork>(model.spec(), parameters_of(model, weights),
                                                   encoder_of(model), weights.type);
}

decoding::KeptWeights kept_weights(const BaseModel& model, const Weights& weights) {
  if (weights.type == WeightType::f32) return {};
  return {weights.type, parameters_of(model, weights)};
}

void drop_packed(BaseModel& model, const Weights& weights) {
  if (!Device::current().is_cpu() && weights.type == WeightType::f32) return;
  for (ParamInfo& info : model.parameters().all())
    if (!model.spec().encoder_has_experts() || info.name.starts_with("decoder/"))
      info.value = info.compute = Tensor();
  Device::current().memory().release_cached();
}

Predictor::Predictor(const ConfiguredModel& model, std::optional<int64_t> beams,
                     const Weights& weights)
    : model_(model.model) {
  if (!Device::current().is_cpu())
    device_ = std::make_unique<decoding::DeviceDecoder>(*model.model,
                                                        kept_weights(*model.model, weights));
  else
    network_ = pack(*model.model, weights);
  const ModelSpec& spec = model.model->spec();
  decoder_only_ = spec.decoder_only();
  options_.inputs_bidirectional_attention = spec.inputs_bidirectional_attention;
  options_.eos_id = eos_of(model);
  options_.decode_fn = configured_decode_fn(model, decoder_only_);
  if (model.config != nullptr) {
    const gin::Arguments method = model.config->arguments(model.name + ".predict_batch_with_aux");
    options_.prompt_with_targets = method.get<bool>("prompt_with_targets");
    returns_all_decodes_ = method.get<bool>("return_all_decodes");
  }
  if (beams) {
    BeamOptions beam;
    beam.num_decodes = *beams;
    if (const auto* bound = std::get_if<BeamOptions>(&options_.decode_fn))
      beam.alpha = bound->alpha;
    options_.decode_fn = beam;
  }
}

decoding::Decodes Predictor::predict(const HostArrays& batch, Key key) const {
  decoding::PredictOptions options = options_;
  if (auto* sample = std::get_if<SampleOptions>(&options.decode_fn)) sample->decode_rng = key;
  const auto run = [&](auto& on) {
    return decoder_only_ ? decoding::predict_decoder_only(on, batch, options)
                         : decoding::predict_encoder_decoder(on, batch, options);
  };
  return device_ != nullptr ? run(*device_) : run(*network_);
}

decoding::Answers Predictor::answer(const HostArrays& batch,
                                    std::vector<decoding::GenerationRequest> requests) const {
  using namespace decoding;
  const auto run = [&](auto& on) {
    return decoder_only_ ? answer_decoder_only(on, batch, options_.inputs_bidirectional_attention,
                                               std::move(requests))
                         : answer_encoder_decoder(on, batch, std::move(requests));
  };
  return device_ != nullptr ? run(*device_) : run(*network_);
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
