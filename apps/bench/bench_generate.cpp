// `quintet bench generate`: tokens a second of greedy decoding, sampling or beam search, the
// encoder included, or of the encoder alone.

#include "apps/bench/bench.h"
#include "apps/bench/bench_models.h"
#include "models/decoding/cpu/transformer_decoder.h"
#include "models/decoding/gpu/device_decoder.h"
#include "models/decoding/search/beam_search.h"
#include "models/decoding/search/temperature_sample.h"

namespace quintet {
namespace {

/// Random parameters, drawn tensor by tensor as they are packed: the peak is what generation needs.
decoding::ParameterSource random_source(const T5Config& config) {
  struct Declared {
    Parameters parameters;
    Transformer network;
    std::vector<float> values;
    explicit Declared(const T5Config& c) : network(Scope(parameters), c) {}
  };
  return [declared = std::make_shared<Declared>(config)](const std::string& name) {
    const ParamInfo& info = declared->parameters.at(name);
    std::vector<int64_t> sizes;
    for (const Axis& axis : info.spec.axes) sizes.push_back(axis.size);
    declared->values = std::vector<float>(static_cast<size_t>(info.spec.elements()));
    info.initializer(key_of_parameter(key_from_seed(0), name), sizes, declared->values);
    return View::of(declared->values.data(), sizes);
  };
}

}  // namespace

int run_bench_generate(std::span<char* const> args) {
  BenchOptions options;
  options.inputs = options.targets = 128;
  if (!parse_bench_options("generate",
                           "Times generation by a T5 1.1 (encoder included, nothing ends early).",
                           args, true, options))
    return 0;
  const T5Config config = published_model_config(options.model, options.dtype);
  const HostArray inputs = random_batch(options, config.vocab_size).at("encoder_input_tokens");
  const std::vector<int32_t> start(static_cast<size_t>(options.batch * options.targets), 0);
  const decoding::Prompts prompts{options.batch, options.targets, start};
  constexpr int32_t kNoEos = -1;  // so that exactly `targets` tokens are made
  const auto run = [&](auto& decoder) {
    decoder.begin(inputs.as<int32_t>(), options.batch, options.inputs,
                  {.num_decodes = options.beams, .max_length = options.targets});
    if (options.encode_only) return Device::current().synchronize();
    if (options.top_p > 0)
      decoding::temperature_sample(prompts, decoder, kNoEos,
                                   {.topk = 0, .topp = static_cast<float>(options.top_p)});
    else if (options.beams == 1)
      decoding::temperature_sample(prompts, decoder, kNoEos, {.temperature = {0.0f}});
    else
      decoding::beam_search(prompts, decoder, kNoEos, {.num_decodes = options.beams});
  };
  const int64_t tokens = options.batch * (options.encode_only ? options.inputs : options.targets);
  const WeightType weights = options.quantize.type().value_or(WeightType::f32);
  if (Device::current().is_cpu()) {
    const decoding::PackedNetwork network(spec_of(config), random_source(config), {}, weights);
    decoding::TransformerDecoder decoder(network);
    time_steps("generate", options, tokens, [&] { run(decoder); });
  } else {
    EncoderDecoderModel model(config, {});
    if (weights == WeightType::f32) model.parameters().initialize(key_from_seed(0));
    decoding::DeviceDecoder decoder(model, {weights, random_source(config)});
    time_steps("generate", options, tokens, [&] { run(decoder); });
  }
  return 0;
}

}  // namespace quintet
