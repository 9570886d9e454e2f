#include "apps/bench/bench_models.h"

#include <omp.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "apps/bench/dtype_flag.h"
#include "apps/flags/command_line.h"
#include "apps/plan/layouts.h"
#include "data/converters/batch_rows.h"
#include "data/converters/feature_converter.h"
#include "runtime/base/clock.h"
#include "runtime/base/memory/memory.h"
#include "runtime/base/nearest.h"
#include "runtime/base/threefry.h"
#include "runtime/optim/optax/optax.h"
#include "runtime/profile/profile.h"

namespace quintet {
namespace {

int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace

bool parse_bench_options(const std::string& what, const std::string& summary,
                         std::span<char* const> args, bool generates, BenchOptions& options) {
  CommandLine cli("bench " + what, summary,
                  options.launcher + "quintet bench " + what +
                      " --model=t5_1_1_small --batch=8 --inputs=256 --targets=64 --dtype=float32 "
                      "--threads=2 --steps=5");
  CLI::App& app = cli.app();
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 40);
  add_model_flags(app, options, !generates);
  app.add_option("--steps", options.steps, "timed steps")->check(positive);
  add_dtype_flag(app, options.dtype);
  options.compute.add_to(app);
  options.format.add_to(app);
  app.add_flag("--profile", options.profile, "time and bytes of each op, on stderr");
  if (generates) {
    app.add_option("--beams", options.beams, "1: greedy")->check(positive);
    app.add_option("--top_p", options.top_p, "sample from the likeliest tokens that reach it")
        ->check(CLI::Range(0.0, 1.0));
    app.add_option("--model_dir", options.model_dir,
                   "a run or a Hugging Face directory, instead of --model with random weights")
        ->excludes("--model")
        ->excludes("--dtype");
    app.add_flag("--encode_only", options.encode_only,
                 "only one pass of the encoder, without generating tokens");
    options.quantize.add_to(app);
    options.cache.add_to(app);
  } else {
    app.add_option("--optimizer", options.optimizer, "adamw or adafactor")
        ->check(CLI::IsMember({"adamw", "adafactor"}));
    app.add_option("--dropout", options.dropout, "rate")->check(CLI::Range(0.0, 0.99));
    app.add_option("--examples", options.examples,
                   "lengths INPUTS/TARGETS of examples, comma-separated: packed into rows of "
                   "--inputs and --targets "
                   "tokens, instead of --batch full rows")
        ->delimiter(',');
    app.add_option("--remat_policy", options.remat,
                   "what a layer computes again for the backward pass: "
                   "network.T5Config.remat_policy")
        ->check(CLI::IsMember({"none", "minimal", "full"}));
    options.microbatches.add_microbatches_to(app);
    options.microbatches.add_gradient_dtype_to(app);
    app.add_flag("--optimizer_offload", options.optimizer_offload,
                 "on a GPU: optimizer state, update and masters on the host; slow");
    options.lora.add_to(app);
  }
  if (!cli.parse(args)) return false;
  options.compute.start();
  check_dtype_flag(what, options.dtype);
  return true;
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

void time_steps(const std::string& what, const BenchOptions& options, int64_t tokens_per_step,
                const std::function<void()>& step, const BesideSteps& beside) {
  std::vector<double> seconds;
  step();
  Profile profile;
  const DeviceCounts before = Device::current().counters().read();
  for (int64_t i = 0; i < options.steps; ++i) {
    if (beside.before) beside.before();
    const Profile::Use use(options.profile ? &profile : nullptr);
    const auto start = Clock::now();
    step();
    seconds.push_back(seconds_since(start));
  }
  const DeviceCounts counts = Device::current().counters().read() - before;
  std::sort(seconds.begin(), seconds.end());
  const double least = seconds.front(), median = seconds[seconds.size() / 2];
  const double rate = static_cast<double>(tokens_per_step) / least;
  const std::string& model = options.model_dir.empty() ? options.model : options.model_dir;
  nlohmann::ordered_json json = {
      {"bench", what},
      {"device", Device::current().description()},
      {"model", model},
      {"batch", options.batch},
      {"inputs", options.inputs},
      {"targets", options.targets},
      {"beams", options.beams},
      {"dtype", options.dtype},
      {"weights", name_of(options.quantize.type().value_or(WeightType::f32))},
      {"kv_cache", options.cache.name},
      {"threads", omp_get_max_threads()},
      {"steps", options.steps},
      {"tokens_per_second", rate},
      {"seconds_per_step", {{"min", least}, {"median", median}}},
      {"peak_bytes", peak_resident_bytes()},
      {"tensor_bytes", Device::current().memory().peak_bytes()}};
  json.update(counts_json(counts, options.steps));
  const auto [members, line] =
      beside.facts ? beside.facts(least) : std::pair<std::string, std::string>();
  if (!members.empty()) json.update(nlohmann::ordered_json::parse(members));
  options.format.print_object(json.dump());
  options.format.print_text(
      fmt::format("{} {}: {:.1f} tokens/s, {:.3f} s a step (median {:.3f}), peak {} MiB\n", what,
                  model, rate, least, median, peak_resident_bytes() >> 20) +
      line);
  if (options.profile)
    fmt::print(stderr, "{}\n",
               profile.table(options.steps, std::accumulate(seconds.begin(), seconds.end(), 0.0)));
}

}  // namespace quintet
