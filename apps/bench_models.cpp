#include "apps/bench_models.h"

#include <omp.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "apps/cli.h"
#include "data/batch_rows.h"
#include "data/feature_converter.h"
#include "runtime/base/clock.h"
#include "runtime/base/memory.h"
#include "runtime/base/nearest.h"
#include "runtime/base/threefry.h"
#include "runtime/optim/optax.h"
#include "runtime/profile.h"

namespace quintet {
namespace {

constexpr int64_t kVocabulary = 32128, kMegatronVocabulary = 29184;

struct Size {
  int64_t emb_dim, num_heads, mlp_dim, num_layers;
  int64_t vocab_size = kVocabulary;
  std::vector<std::string> activations = {"gelu", "linear"};
};
// T5 1.1's published sizes (arXiv:2002.05202 and t5x/examples/t5/t5_1_1); heads are 64 wide. Those of
// Megatron-LM's tests (tests/functional_tests/test_cases/t5), whose runs are published.
const std::map<std::string, Size> kSizes = {
    {"t5_1_1_tiny", {8, 4, 16, 2}},
    {"t5_1_1_small", {512, 6, 1024, 8}},
    {"t5_1_1_base", {768, 12, 2048, 12}},
    {"t5_1_1_large", {1024, 16, 2816, 24}},
    {"t5_1_1_xl", {2048, 32, 5120, 24}},
    {"t5_1_1_xxl", {4096, 64, 10240, 24}},
    {"megatron_t5_220m", {768, 12, 3072, 12, kMegatronVocabulary, {"gelu"}}},
    {"megatron_t5_11b", {4096, 64, 10240, 24, kMegatronVocabulary, {"gelu"}}},
};

int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

HostArray random_tokens(int64_t rows, int64_t length, int64_t vocab_size, uint32_t seed) {
  HostArray array(DType::i32, {rows, length});
  std::vector<uint32_t> bits(static_cast<size_t>(array.elements()));
  uint32_t state = seed;
  for (size_t i = 0; i < bits.size(); ++i) {
    state = state * 1664525u + 1013904223u;  // any spread-out ids will do here
    array.as<int32_t>()[i] =
        static_cast<int32_t>(3 + (state >> 8) % static_cast<uint32_t>(vocab_size - 3));
  }
  return array;
}

}  // namespace

void add_model_flags(CLI::App& app, BenchOptions& options) {
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 40);
  app.add_option("--model", options.model, "t5_1_1_tiny, _small, _base, _large, _xl or _xxl");
  app.add_option("--batch", options.batch, "sequences a step")->check(positive);
  app.add_option("--inputs", options.inputs, "tokens of an input")->check(positive);
  app.add_option("--targets", options.targets, "tokens of a target")->check(positive);
}

LayoutCase bench_case(const BenchOptions& options) {
  const T5Config config = bench_model_config(options.model, options.dtype);
  LayoutCase what;
  what.make = [config] {
    LossOptions loss;
    loss.z_loss = 1e-4;
    return ModelAndOptimizer{std::make_shared<EncoderDecoderModel>(config, loss),
                             optax_optimizer(adamw(1e-3))};
  };
  what.batch = [options, vocabulary = config.vocab_size](int64_t) {
    return random_batch(options, vocabulary);
  };
  what.tokens = options.batch * (options.inputs + options.targets);
  return what;
}

bool parse_bench_options(const std::string& what, const std::string& summary,
                         std::span<char* const> args, bool generates, BenchOptions& options) {
  CommandLine cli("bench " + what, summary,
                  "quintet bench " + what +
                      " --model=t5_1_1_small --batch=8 --inputs=256 --targets=64 --dtype=float32 "
                      "--threads=2 --steps=5");
  CLI::App& app = cli.app();
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 40);
  add_model_flags(app, options);
  app.add_option("--steps", options.steps, "timed steps")->check(positive);
  app.add_option("--dtype", options.dtype, "float32, or bfloat16 on a GPU");
  options.compute.add_to(app);
  app.add_flag("--profile", options.profile, "time and bytes of each op, on stderr");
  if (generates) {
    app.add_option("--beams", options.beams, "1: greedy")->check(positive);
    app.add_option("--top_p", options.top_p, "sample from the likeliest tokens that reach it")
        ->check(CLI::Range(0.0, 1.0));
    app.add_flag("--encode_only", options.encode_only, "one pass of the encoder, no tokens made");
    options.quantize.add_to(app);
  } else {
    app.add_option("--optimizer", options.optimizer, "adamw or adafactor")
        ->check(CLI::IsMember({"adamw", "adafactor"}));
    app.add_option("--dropout", options.dropout, "rate")->check(CLI::Range(0.0, 0.99));
    app.add_option("--examples", options.examples,
                   "lengths INPUTS/TARGETS of examples, comma-separated: packed into rows of "
                   "--inputs and --targets "
                   "tokens, instead of --batch full rows")
        ->delimiter(',');
  }
  if (!cli.parse(args)) return false;
  options.compute.start();
  QT_CHECK(
      options.dtype == "float32" || (options.dtype == "bfloat16" && !Device::current().is_cpu()),
      "quintet bench {}: --dtype={} is not supported on {}; use float32", what, options.dtype,
      Device::current().description());
  return true;
}

T5Config bench_model_config(const std::string& name, const std::string& dtype) {
  const auto found = kSizes.find(name);
  std::vector<std::string> names;
  for (const auto& [known, size] : kSizes) names.push_back(known);
  QT_CHECK(found != kSizes.end(), "--model={} is unknown{} Known: {}", name,
           did_you_mean(name, names), fmt::join(names, ", "));
  T5Config config;
  config.vocab_size = found->second.vocab_size;
  config.emb_dim = found->second.emb_dim;
  config.num_heads = found->second.num_heads;
  config.head_dim = name == "t5_1_1_tiny" ? 3 : 64;
  config.mlp_dim = found->second.mlp_dim;
  config.num_encoder_layers = config.num_decoder_layers = found->second.num_layers;
  config.mlp_activations = found->second.activations;
  config.dropout_rate = 0;
  config.dtype = dtype;
  return config;
}

HostArrays random_batch(const BenchOptions& options, int64_t vocab_size) {
  HostArrays batch;
  batch["encoder_input_tokens"] = random_tokens(options.batch, options.inputs, vocab_size, 1);
  HostArray targets = random_tokens(options.batch, options.targets, vocab_size, 2);
  HostArray shifted(DType::i32, targets.shape), weights(DType::i32, targets.shape);
  for (int64_t i = 0; i < targets.elements(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (i % options.targets != 0) shifted.as<int32_t>()[at] = targets.as<int32_t>()[at - 1];
    weights.as<int32_t>()[at] = 1;
  }
  batch["decoder_target_tokens"] = std::move(targets);
  batch["decoder_input_tokens"] = std::move(shifted);
  batch["decoder_loss_weights"] = std::move(weights);
  return batch;
}

HostArrays packed_batch(const BenchOptions& options, int64_t vocab_size) {
  std::vector<data::Example> examples;
  for (const std::string& lengths : options.examples) {
    const size_t slash = lengths.find('/');
    QT_CHECK(slash != std::string::npos &&
                 lengths.find_first_not_of("0123456789/") == std::string::npos &&
                 lengths.find('/', slash + 1) == std::string::npos && slash > 0 &&
                 slash + 1 < lengths.size() && lengths.size() < 16,
             "--examples={}: expected lengths as INPUTS/TARGETS, 200/5 say", lengths);
    data::Example example;
    for (const auto& [name, text, most] :
         {std::tuple("inputs", lengths.substr(0, slash), options.inputs),
          std::tuple("targets", lengths.substr(slash + 1), options.targets)}) {
      const int64_t length = std::stoll(text);
      QT_CHECK(length > 0 && length <= most,
               "--examples={}: {} must be 1 to {}, the length of a row", lengths, name, most);
      const HostArray tokens =
          random_tokens(1, length, vocab_size, static_cast<uint32_t>(examples.size() + 1));
      example.set(name, data::Tokens(tokens.as<int32_t>().begin(), tokens.as<int32_t>().end()));
    }
    examples.push_back(std::move(example));
  }
  const auto converter = data::make_feature_converter(
      "EncDecFeatureConverter", {.pack = true, .packing = data::Packing::best_fit});
  const data::Lengths lengths{{"inputs", options.inputs}, {"targets", options.targets}};
  std::vector<data::Example> rows(1);
  for (const auto stream = converter->convert(data::stream_of(std::move(examples)), lengths);
       stream->next(rows.back());)
    rows.emplace_back();
  rows.pop_back();
  HostArrays batch =
      data::arrays_for(rows.front(), converter->model_feature_lengths(lengths), std::ssize(rows));
  for (int64_t row = 0; row < std::ssize(rows); ++row)
    data::copy_row(rows[static_cast<size_t>(row)], row, batch);
  return batch;
}

void time_steps(const std::string& what, const BenchOptions& options, int64_t tokens_per_step,
                const std::function<void()>& step) {
  std::vector<double> seconds;
  step();
  Profile profile;
  if (options.profile) Profile::current() = &profile;
  for (int64_t i = 0; i < options.steps; ++i) {
    const auto start = Clock::now();
    step();
    seconds.push_back(seconds_since(start));
  }
  Profile::current() = nullptr;
  std::sort(seconds.begin(), seconds.end());
  const double least = seconds.front(), median = seconds[seconds.size() / 2];
  const double rate = static_cast<double>(tokens_per_step) / least;
  const nlohmann::ordered_json json = {
      {"bench", what},
      {"device", Device::current().description()},
      {"model", options.model},
      {"batch", options.batch},
      {"inputs", options.inputs},
      {"targets", options.targets},
      {"beams", options.beams},
      {"dtype", options.dtype},
      {"weights", name_of(options.quantize.type().value_or(WeightType::f32))},
      {"threads", omp_get_max_threads()},
      {"steps", options.steps},
      {"tokens_per_second", rate},
      {"seconds_per_step", {{"min", least}, {"median", median}}},
      {"peak_bytes", peak_resident_bytes()},
      {"tensor_bytes", Device::current().memory().peak_bytes()}};
  fmt::print("{}\n", json.dump());
  fmt::print(stderr, "{} {}: {:.1f} tokens/s, {:.3f} s a step (median {:.3f}), peak {} MiB\n", what,
             options.model, rate, least, median, peak_resident_bytes() >> 20);
  if (options.profile)
    fmt::print(stderr, "{}\n",
               profile.table(options.steps, std::accumulate(seconds.begin(), seconds.end(), 0.0)));
}

}  // namespace quintet
