// `quintet bench generate`: tokens a second of greedy decoding, sampling or beam search, the
// encoder included, or of the encoder alone.

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "apps/bench/bench.h"
#include "apps/bench/bench_models.h"
#include "apps/bench/multiply_adds.h"
#include "apps/bench/read_bandwidth.h"
#include "apps/model/predictor.h"
#include "apps/model/trained_model.h"
#include "kernels/cpu/amx.h"
#include "models/decoding/cpu/transformer_decoder.h"
#include "models/decoding/gpu/gpu_decoder.h"
#include "models/decoding/search/beam_search.h"
#include "models/decoding/search/temperature_sample.h"
#include "runtime/base/clock.h"

namespace quintet {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Least seconds of a run's parts.
struct Least {
  double encoder = kNever, steps = kNever;
};

/// On a CPU, how near the decoder's steps come to what bounds them, reading weights, keys and values as fast as memory
/// gives them or multiplying with weights as fast as the threads can, with the encoder's pass and without it. Measured by
/// turns with the steps and for as many of them, so that what else the machine does meets all.
class StepBound {
 public:
  StepBound(const BenchOptions& options, const decoding::PackedNetwork& network,
            const decoding::TransformerDecoder& decoder, const Least& least)
      : options_(options),
        decoder_(decoder),
        least_(least),
        work_(network.step_work(options.batch * options.beams)),
        memory_(work_.matrices) {}

  BesideSteps beside() {
    if (options_.encode_only) return {};
    return {[this] { measure(); }, [this](double run) { return facts(run); }};
  }

 private:
  void measure() {
    const auto all_steps = [this](const auto& seconds_of_one) {
      double seconds = 0;
      for (int64_t i = 0; i < options_.targets; ++i) seconds += seconds_of_one();
      return seconds;
    };
    for (const auto streams : {ReadBandwidth::Streams::many, ReadBandwidth::Streams::one_each})
      reading_ = std::min(reading_, all_steps([&] { return memory_.seconds_of_a_pass(streams); }));
    multiplying_ = std::min(multiplying_, all_steps([&] {
                              double seconds = 0;
                              for (const auto& [type, count] : work_.multiply_adds)
                                seconds += seconds_of_multiply_adds(count, type);
                              return seconds;
                            }));
  }
  std::pair<std::string, std::string> facts(double run) const {
    const auto steps = static_cast<double>(options_.targets),
               weights = static_cast<double>(work_.bytes);
    int64_t all_multiply_adds = 0;
    for (const auto& [type, count] : work_.multiply_adds) all_multiply_adds += count;
    const auto multiply_adds = static_cast<double>(all_multiply_adds);
    const int64_t cached_bytes = decoder_.read_bytes((options_.targets - 1) / 2);
    const auto cached = static_cast<double>(cached_bytes);
    const double bandwidth = steps * weights / reading_,
                 rate = steps * multiply_adds / multiplying_;
    const double reading = steps * (weights + cached) / bandwidth;
    // Without tiles int8_dynamic multiplies bytes of vectors, several times as fast as memory gives them.
    const bool reads = (options_.quantize.type() == WeightType::int8_dynamic &&
                        amx::source() != amx::Source::cpu) ||
                       reading > multiplying_;
    const double bound = reads ? reading : multiplying_;
    const char* name = reads ? "memory" : "arithmetic";
    const auto cache_bytes = decoder_.cache_bytes();
    const nlohmann::ordered_json json = {{"cache_bytes", cache_bytes},
                                         {"weight_bytes_per_step", work_.bytes},
                                         {"cache_bytes_per_step", cached_bytes},
                                         {"read_bytes_per_second", bandwidth},
                                         {"multiply_adds_per_step", all_multiply_adds},
                                         {"multiply_adds_per_second", rate},
                                         {"encoder_seconds", least_.encoder},
                                         {"decoder_seconds", least_.steps},
                                         {"bound", name},
                                         {"of_bound", bound / least_.steps},
                                         {"of_bound_with_encoder", bound / run}};
    return {
        json.dump(),
        fmt::format("  a step of the decoder reads {:.1f} MB of weights and {:.1f} MB of keys and "
                    "values, memory gives {:.1f} GB/s; it multiplies {:.2f} G times with weights, "
                    "threads can {:.0f} G times a second\n  {} bounds it: {:.2f} of the bound's "
                    "speed, {:.2f} with the encoder's {:.3f} s; caches ({}) take {:.1f} MB\n",
                    weights / 1e6, cached / 1e6, bandwidth / 1e9, multiply_adds / 1e9, rate / 1e9,
                    name, bound / least_.steps, bound / run, least_.encoder, options_.cache.name,
                    static_cast<double>(cache_bytes) / 1e6)};
  }

  const BenchOptions& options_;
  const decoding::TransformerDecoder& decoder_;
  const Least& least_;
  const decoding::PackedNetwork::StepWork work_;
  double reading_ = kNever, multiplying_ = kNever;  // seconds of all steps' weights
  ReadBandwidth memory_;
};

void time_on_cpu(const BenchOptions& options, int64_t tokens,
                 const decoding::PackedNetwork& network, const Least& least, const auto& run) {
  decoding::TransformerDecoder decoder(network);
  StepBound bound(options, network, decoder, least);
  time_steps(
      "generate", options, tokens, [&] { run(decoder); }, bound.beside());
}

/// Of a model directory.
void time_trained(const BenchOptions& options, int64_t tokens, const TrainedModel& trained,
                  const Least& least, const auto& run) {
  const Weights weights = weights_to_generate(options.quantize.type(), trained.reader);
  const BaseModel& model = *trained.model->model;
  if (Device::current().is_cpu())
    return time_on_cpu(options, tokens, *pack(model, weights), least, run);
  decoding::GpuDecoder decoder(model, inference_weights(model, weights));
  time_steps("generate", options, tokens, [&] { run(decoder); });
}

/// Of a published size with random weights.
void time_random(const BenchOptions& options, int64_t tokens, const T5Config& config,
                 const Least& least, const auto& run) {
  const WeightType weights = options.quantize.type().value_or(WeightType::f32);
  if (Device::current().is_cpu())
    return time_on_cpu(options, tokens,
                       decoding::PackedNetwork(spec_of(config), random_source(config), weights),
                       least, run);
  EncoderDecoderModel model(config, {});
  if (weights == WeightType::f32) model.parameters().initialize(key_from_seed(0));
  decoding::GpuDecoder decoder(model, {weights, random_source(config)});
  time_steps("generate", options, tokens, [&] { run(decoder); });
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
  Least least;
  const auto decode = [&](auto& decoder) {
    if (options.top_p > 0)
      decoding::temperature_sample(prompts, decoder, kNoEos,
                                   {.topk = 0, .topp = static_cast<float>(options.top_p)});
    else if (options.beams == 1)
      decoding::temperature_sample(prompts, decoder, kNoEos, {.temperature = {0.0f}});
    else
      decoding::beam_search(prompts, decoder, kNoEos, {.num_decodes = options.beams});
  };
  const auto run = [&](auto& decoder) {
    const double since = now_seconds();
    decoder.begin(inputs.as<int32_t>(), options.batch, options.inputs,
                  {.num_decodes = options.beams,
                   .max_length = options.targets,
                   .type = options.cache.type()});
    if (options.encode_only) return Device::current().synchronize();
    const double begun = now_seconds();
    decode(decoder);
    least.encoder = std::min(least.encoder, begun - since);
    least.steps = std::min(least.steps, now_seconds() - begun);
  };
  const int64_t tokens = options.batch * (options.encode_only ? options.inputs : options.targets);
  if (trained)
    time_trained(options, tokens, *trained, least, run);
  else
    time_random(options, tokens, *config, least, run);
  return 0;
}

}  // namespace quintet
