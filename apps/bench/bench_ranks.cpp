// `mpirun -n N quintet bench ranks`: tokens a second of one rank and of all ranks that hold the model together,
// beside the read bandwidth of one and of all. Generation with few rows reads every weight once a step, so that all
// ranks can be as much faster as they read faster.

#include <omp.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/bench/bench.h"
#include "apps/bench/bench_models.h"
#include "apps/bench/read_bandwidth.h"
#include "apps/process/inference_ranks.h"
#include "models/decoding/cpu/transformer_decoder.h"
#include "models/decoding/search/temperature_sample.h"
#include "runtime/base/clock.h"
#include "runtime/base/median.h"

namespace quintet {
namespace {

struct Measured {
  std::vector<double> bandwidth, tokens;  // a second, of each round
};

nlohmann::ordered_json json_of(const Measured& measured) {
  return {{"read_gb_per_second", median(measured.bandwidth) / 1e9},
          {"tokens_per_second", median(measured.tokens)}};
}

/// Both by turns, so that what else the machine does meets both.
class Comparison {
 public:
  Comparison(const BenchOptions& options, const T5Config& config, SharedMemoryGroup& group)
      : options_(options),
        group_(group),
        inputs_(random_batch(options, config.vocab_size).at("encoder_input_tokens")),
        together_(spec_of(config), random_source(config), type(), &group) {
    if (group.leads()) alone_.emplace(spec_of(config), random_source(config), type());
    bandwidth_.emplace(together_.step_work(options.batch).matrices);
    if (group.leads()) bandwidth_alone_.emplace(alone_->step_work(options.batch).matrices);
    for (int64_t round = 0; round <= options.steps; ++round) measure(round > 0);
  }
  const Measured& one() const { return one_; }
  const Measured& all() const { return all_; }

 private:
  WeightType type() const { return options_.quantize.type().value_or(WeightType::f32); }

  void measure(bool counts) {
    Measured one, all;
    std::vector<int32_t> alone;
    constexpr int kPasses = 4;
    if (group_.leads()) {
      one.bandwidth.push_back(bandwidth_alone_->best_of(kPasses));
      alone = generate(*alone_, one);
    }
    group_.of_leader("");  // the others sleep until here
    for (int i = 0; i < 2 * kPasses; ++i) {
      using enum ReadBandwidth::Streams;
      group_.wait();
      const double since = now_seconds();
      bandwidth_->seconds_of_a_pass(i % 2 == 0 ? many : one_each);
      group_.wait();
      all.bandwidth.push_back(bandwidth_->bytes() * group_.size() / (now_seconds() - since));
    }
    const std::vector<int32_t> together = generate(together_, all);
    QT_CHECK_AS(ExitCode::kBug, !group_.leads() || alone == together,
                "bench ranks: {} ranks together gave other tokens than one", group_.size());
    if (!counts) return;
    for (auto [from, to] : {std::pair(&one, &one_), {&all, &all_}}) {
      if (from->tokens.empty()) continue;
      to->bandwidth.push_back(*std::max_element(from->bandwidth.begin(), from->bandwidth.end()));
      to->tokens.push_back(from->tokens.front());
    }
  }
  /// The steps of the decoder alone: the encoder's pass is bound by arithmetic.
  std::vector<int32_t> generate(const decoding::PackedNetwork& network, Measured& measured) const {
    decoding::TransformerDecoder decoder(network);
    decoder.begin(
        inputs_.as<int32_t>(), options_.batch, options_.inputs,
        {.num_decodes = 1, .max_length = options_.targets, .type = options_.cache.type()});
    const std::vector<int32_t> start(static_cast<size_t>(options_.batch * options_.targets), 0);
    const decoding::Prompts prompts{options_.batch, options_.targets, start};
    constexpr int32_t kNoEos = -1;  // so that exactly `targets` tokens are made
    const double since = now_seconds();
    const auto decodes =
        decoding::temperature_sample(prompts, decoder, kNoEos, {.temperature = {0.0f}});
    measured.tokens.push_back(static_cast<double>(options_.batch * options_.targets) /
                              (now_seconds() - since));
    return decodes.tokens;
  }

  const BenchOptions& options_;
  SharedMemoryGroup& group_;
  const HostArray inputs_;
  const decoding::PackedNetwork together_;
  std::optional<decoding::PackedNetwork> alone_;
  std::optional<ReadBandwidth> bandwidth_, bandwidth_alone_;
  Measured one_, all_;
};

}  // namespace

int run_bench_ranks(std::span<char* const> args) {
  BenchOptions options;
  options.batch = 1;
  options.inputs = options.targets = 128;
  options.launcher = "mpirun -n 2 ";
  if (!parse_bench_options(
          "ranks",
          "Times the decoder's steps by one rank and by all ranks of mpirun, which hold a T5 "
          "1.1 together, beside the read bandwidth of one and of all.",
          args, true, options))
    return 0;
  QT_CHECK(
      options.model_dir.empty() && options.beams == 1 && options.top_p == 0 && !options.encode_only,
      "quintet bench ranks: generates greedily by a published size with random weights; leave "
      "--model_dir, --beams, --top_p and --encode_only");
  Ranks ranks(RankFlags{});
  ranks.open(Device::current());
  QT_CHECK(Device::current().is_cpu(), "quintet bench ranks: times CPUs; use --device=cpu");
  QT_CHECK(ranks.size() > 1,
           "quintet bench ranks: start it with 'mpirun -n 2 quintet bench ranks'");
  const InferenceRanks division(ranks, ranks.size());
  const Comparison compared(options, published_model_config(options.model, options.dtype),
                            *division.group());
  if (!ranks.leads()) return 0;
  const double faster = median(compared.all().tokens) / median(compared.one().tokens);
  const double bound = median(compared.all().bandwidth) / median(compared.one().bandwidth);
  const nlohmann::ordered_json json = {
      {"bench", "ranks"},
      {"device", Device::current().description()},
      {"model", options.model},
      {"batch", options.batch},
      {"weights", name_of(options.quantize.type().value_or(WeightType::f32))},
      {"kv_cache", options.cache.name},
      {"threads", omp_get_max_threads()},
      {"ranks", ranks.size()},
      {"rounds", options.steps},
      {"one", json_of(compared.one())},
      {"all", json_of(compared.all())},
      {"faster", faster},
      {"bound", bound},
      {"of_bound", faster / bound}};
  options.format.print_object(json.dump());
  options.format.print_text(fmt::format(
      "{} of {} ranks: {:.1f} tokens/s and {:.1f} GB/s, of one {:.1f} and {:.1f}: {:.2f} times as "
      "fast, {:.2f} of the bandwidth's {:.2f}\n",
      options.model, ranks.size(), median(compared.all().tokens),
      median(compared.all().bandwidth) / 1e9, median(compared.one().tokens),
      median(compared.one().bandwidth) / 1e9, faster, faster / bound, bound));
  return 0;
}

}  // namespace quintet
