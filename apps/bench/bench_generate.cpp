// `quintet bench generate`: tokens a second of greedy decoding, sampling or beam search, the
// encoder included, or of the encoder alone.

#include "apps/bench/bench.h"
#include "apps/bench/bench_models.h"
#include "apps/model/predictor.h"
#include "apps/model/trained_model.h"
#include "models/decoding/cpu/transformer_decoder.h"
#include "models/decoding/gpu/gpu_decoder.h"
#include "models/decoding/search/beam_search.h"
#include "models/decoding/search/temperature_sample.h"

namespace quintet {
namespace {

/// Of a model directory.
void time_trained(const BenchOptions& options, int64_t tokens, const TrainedModel& trained,
                  const auto& run) {
  const Weights weights = weights_to_generate(options.quantize.type(), trained.reader);
  const BaseModel& model = *trained.model->model;
  if (Device::current().is_cpu()) {
    const auto network = pack(model, weights);
    decoding::TransformerDecoder decoder(*network);
    time_steps("generate", options, tokens, [&] { run(decoder); });
  } else {
    decoding::GpuDecoder decoder(model, inference_weights(model, weights));
    time_steps("generate", options, tokens, [&] { run(decoder); });
  }
}

/// Of a published size with random weights.
void time_random(const BenchOptions& options, int64_t tokens, const T5Config& config,
                 const auto& run) {
  const WeightType weights = options.quantize.type().value_or(WeightType::f32);
  if (Device::current().is_cpu()) {
    const decoding::PackedNetwork network(spec_of(config), random_source(config), weights);
    decoding::TransformerDecoder decoder(network);
    time_steps("generate", options, tokens, [&] { run(decoder); });
  } else {
    EncoderDecoderModel model(config, {});
    if (weights == WeightType::f32) model.parameters().initialize(key_from_seed(0));
    decoding::GpuDecoder decoder(model, {weights, random_source(config)});
    time_steps("generate", options, tokens, [&] { run(decoder); });
  }
}

}  // namespace

int run_bench_generate(std::span<char* const> args) {
  BenchOptions options;
  options.inputs = options.targets = 128;
  if (!parse_bench_options("generate",
                           "Times generation (encoder included, nothing ends early) by a T5 1.1 or "
                           "a model directory.",
                           args, true, options))
    return 0;
  std::optional<TrainedModel> trained;
  std::optional<T5Config> config;
  if (options.model_dir.empty())
    config = published_model_config(options.model, options.dtype);
  else
    trained = open_trained_model(options.model_dir, {}, Load::to_generate);
  QT_CHECK(!trained || !trained->model->model->spec().decoder_only(),
           "quintet bench generate: --model_dir={}: expected an encoder and a decoder",
           options.model_dir);
  const int64_t vocab = config ? config->vocab_size : trained->model->model->vocab_size();
  const HostArray inputs = random_batch(options, vocab).at("encoder_input_tokens");
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
  if (trained)
    time_trained(options, tokens, *trained, run);
  else
    time_random(options, tokens, *config, run);
  return 0;
}

}  // namespace quintet
