// `quintet bench generate`: tokens a second of greedy decoding, sampling or beam search, the
// encoder included, or of the encoder alone.

#include <limits>
#include <nlohmann/json.hpp>

#include "apps/bench/bench.h"
#include "apps/bench/bench_models.h"
#include "apps/bench/multiply_adds.h"
#include "apps/bench/read_bandwidth.h"
#include "apps/model/predictor.h"
#include "apps/model/trained_model.h"
#include "models/decoding/cpu/transformer_decoder.h"
#include "models/decoding/gpu/gpu_decoder.h"
#include "models/decoding/search/beam_search.h"
#include "models/decoding/search/temperature_sample.h"
#include "runtime/base/clock.h"

namespace quintet {
namespace {

/// On a CPU, how near the decoder's steps come to what bounds them, reading their weights as fast as memory gives them or
/// multiplying as fast as the threads can, with the encoder's pass and without it. All by turns, so that what else the
/// machine does meets all.
template <typename Begin>
class StepBound {
 public:
  StepBound(const BenchOptions& options, const decoding::PackedNetwork& network,
            const decoding::TransformerDecoder& decoder, const Begin& begin)
      : options_(options),
        decoder_(decoder),
        begin_(begin),
        work_(network.step_work(options.batch * options.beams)),
        memory_(work_.bytes) {}

  BesideSteps beside() {
    if (options_.encode_only) return {};
    return {[this] { measure(); }, [this](double least) { return facts(least); }};
  }

 private:
  void measure() {
    bandwidth_ = std::max(bandwidth_, memory_.best_of(4));
    multiply_adds_ = std::max(multiply_adds_, measure_multiply_adds(4));
    const double since = now_seconds();
    begin_();
    encoder_ = std::min(encoder_, now_seconds() - since);
  }
  std::pair<std::string, std::string> facts(double least) const {
    const double reading = static_cast<double>(work_.bytes) / bandwidth_;
    // int8_dynamic multiplies bytes, several times as fast as memory gives them.
    const double multiplying = options_.quantize.type() == WeightType::int8_dynamic
                                   ? 0
                                   : static_cast<double>(work_.multiply_adds) / multiply_adds_;
    const double bound = std::max(reading, multiplying) * static_cast<double>(options_.targets);
    const double with = bound / least, without = bound / (least - encoder_);
    const char* name = reading > multiplying ? "memory" : "arithmetic";
    const auto cache_bytes = decoder_.cache_bytes();
    const nlohmann::ordered_json json = {{"cache_bytes", cache_bytes},
                                         {"weight_bytes_per_step", work_.bytes},
                                         {"read_bytes_per_second", bandwidth_},
                                         {"multiply_adds_per_step", work_.multiply_adds},
                                         {"multiply_adds_per_second", multiply_adds_},
                                         {"encoder_seconds", encoder_},
                                         {"bound", name},
                                         {"of_bound", without},
                                         {"of_bound_with_encoder", with}};
    return {json.dump(),
            fmt::format("  a step of the decoder reads {:.1f} MB of weights, memory gives {:.1f} "
                        "GB/s; it multiplies and adds {:.2f} G times, threads can {:.0f} G times a "
                        "second\n  {} bounds it: {:.2f} of the bound's speed, {:.2f} with the "
                        "encoder's {:.3f} s; caches ({}) take {:.1f} MB\n",
                        static_cast<double>(work_.bytes) / 1e6, bandwidth_ / 1e9,
                        static_cast<double>(work_.multiply_adds) / 1e9, multiply_adds_ / 1e9, name,
                        without, with, encoder_, options_.cache.name,
                        static_cast<double>(cache_bytes) / 1e6)};
  }

  const BenchOptions& options_;
  const decoding::TransformerDecoder& decoder_;
  const Begin begin_;
  const decoding::PackedNetwork::StepWork work_;
  double bandwidth_ = 0, multiply_adds_ = 0, encoder_ = std::numeric_limits<double>::infinity();
  ReadBandwidth memory_;
};

/// Of a model directory.
void time_trained(const BenchOptions& options, int64_t tokens, const TrainedModel& trained,
                  const auto& begin, const auto& run) {
  const Weights weights = weights_to_generate(options.quantize.type(), trained.reader);
  const BaseModel& model = *trained.model->model;
  if (Device::current().is_cpu()) {
    const auto network = pack(model, weights);
    decoding::TransformerDecoder decoder(*network);
    StepBound bound(options, *network, decoder, [&] { begin(decoder); });
    time_steps(
        "generate", options, tokens, [&] { run(decoder); }, bound.beside());
  } else {
    decoding::GpuDecoder decoder(model, inference_weights(model, weights));
    time_steps("generate", options, tokens, [&] { run(decoder); });
  }
}

/// Of a published size with random weights.
void time_random(const BenchOptions& options, int64_t tokens, const T5Config& config,
                 const auto& begin, const auto& run) {
  const WeightType weights = options.quantize.type().value_or(WeightType::f32);
  if (Device::current().is_cpu()) {
    const decoding::PackedNetwork network(spec_of(config), random_source(config), weights);
    decoding::TransformerDecoder decoder(network);
    StepBound bound(options, network, decoder, [&] { begin(decoder); });
    time_steps(
        "generate", options, tokens, [&] { run(decoder); }, bound.beside());
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
  QT_CHECK(!options.encode_only || !options.cache.is_given(),
           "quintet bench generate: --kv_cache_dtype={}: --encode_only keeps no keys and values; "
           "leave one out",
           options.cache.name);
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
  const auto begin = [&](auto& decoder) {
    decoder.begin(inputs.as<int32_t>(), options.batch, options.inputs,
                  {.num_decodes = options.beams,
                   .max_length = options.targets,
                   .type = options.cache.type()});
  };
  const auto run = [&](auto& decoder) {
    begin(decoder);
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
    time_trained(options, tokens, *trained, begin, run);
  else
    time_random(options, tokens, *config, begin, run);
  return 0;
}

}  // namespace quintet
