// T5X's own decoding of two tiny networks: every case of fixtures/decode.

#include <numeric>

#include "kernels/logits/logits.h"
#include "models/decoding/cpu/transformer_decoder.h"
#include "models/decoding/search/filters.h"
#include "models/decoding/teacher_forced.h"
#include "tests/decode/decode_fixture.h"
#include "tests/harness/device.h"
#include "tests/models/model_fixture.h"

namespace quintet::testing {
namespace {

using namespace decoding;

constexpr double kScoreTolerance = 1e-4;  // fixtures README, decode/

bool have_fixtures() { return std::filesystem::exists(decode_file("cases.json")); }

PredictOptions options_of(const Json& c, int32_t eos) {
  PredictOptions options;
  options.eos_id = eos;
  if (c["fn"].as_string() == "beam_search") {
    BeamOptions beam;
    beam.num_decodes = c["num_decodes"].as_int();
    beam.alpha = static_cast<float>(c["alpha"].as_double());
    if (c.has("max_decode_len")) beam.max_decode_len = c["max_decode_len"].as_int();
    if (c.has("min_log_prob"))
      beam.min_log_prob = static_cast<float>(c["min_log_prob"].as_double());
    options.decode_fn = beam;
  } else {
    SampleOptions sample;
    if (c.has("num_decodes")) sample.num_decodes = c["num_decodes"].as_int();
    sample.temperature = {static_cast<float>(c["temperature"].as_double())};
    if (c.has("topk")) sample.topk = c["topk"].as_int();
    if (c.has("topp")) sample.topp = static_cast<float>(c["topp"].as_double());
    sample.rescale_log_probs = c["rescale_log_probs"].as_bool();
    if (c.has("max_decode_steps")) sample.max_decode_steps = c["max_decode_steps"].as_int();
    options.decode_fn = sample;
  }
  if (c.has("prompt_with_targets"))
    options.prompt_with_targets = c["prompt_with_targets"].as_bool();
  if (c.has("inputs_bidirectional_attention"))
    options.inputs_bidirectional_attention = c["inputs_bidirectional_attention"].as_bool();
  return options;
}

/// Against what T5X has for a case: the sequences of one, or of all its decodes.
void expect_decodes(const Decodes& got, const HostArray& tokens, const HostArray& scores) {
  const bool all = tokens.shape.size() == 3;
  ASSERT_EQ(tokens.shape.back(), got.length);
  for (int64_t i = 0; i < got.batch; ++i)
    for (int64_t d = all ? 0 : got.num_decodes - 1; d < got.num_decodes; ++d) {
      const int64_t at = all ? i * got.num_decodes + d : i;
      const auto want = tokens.as<int32_t>().subspan(static_cast<size_t>(at * got.length),
                                                     static_cast<size_t>(got.length));
      const auto sequence = got.sequence(i, d);
      EXPECT_EQ(std::vector(sequence.begin(), sequence.end()),
                std::vector(want.begin(), want.end()))
          << "item " << i << " decode " << d;
      EXPECT_NEAR(got.scores[static_cast<size_t>(i * got.num_decodes + d)],
                  scores.as<float>()[static_cast<size_t>(at)], kScoreTolerance);
    }
}

TEST(DecodeGolden, TokensAreEqualAndScoresAgree) {
  if (!have_fixtures()) GTEST_SKIP() << "no " << decode_file("cases.json");
  const Json meta = Json::read(decode_file("cases.json"));
  const HostArrays outputs = read_safetensors(decode_file("outputs.safetensors"));
  int checked = 0;
  for (const bool encoder : {true, false}) {
    const std::string kind = encoder ? "encdec" : "decoder_only";
    const HostArrays parameters = read_safetensors(decode_file(kind + ".params.safetensors"));
    const HostArrays batch = read_safetensors(decode_file(kind + ".batch.safetensors"));
    const PackedNetwork network(spec_from(parameters, meta["config"]), source_of(parameters));
    std::unique_ptr<BaseModel> model;
    std::unique_ptr<GpuDecoder> device;
    if (!Device::current().is_cpu()) {
      if (encoder)
        model = model_from(parameters, meta["config"]);
      else
        model = decoder_only_from(parameters, meta["config"], false);
      device = std::make_unique<GpuDecoder>(*model);
    }
    for (const auto& [name, c] : meta["cases"].members()) {
      if (!c.has("fn") || name.starts_with("encdec") != encoder) continue;
      SCOPED_TRACE(name);
      const PredictOptions options = options_of(c, static_cast<int32_t>(meta["eos_id"].as_int()));
      HostArrays features = batch;
      if (options.prompt_with_targets)
        features["decoder_input_tokens"] = outputs.at("encdec_prompt_decoder_input_tokens");
      const auto predict = [&](auto& on) {
        return encoder ? predict_encoder_decoder(on, features, options)
                       : predict_decoder_only(on, features, options);
      };
      const Decodes got = device ? predict(*device) : predict(network);
      expect_decodes(got, outputs.at(name + "/tokens"), outputs.at(name + "/scores"));
      ++checked;
    }
  }
  EXPECT_GT(checked, 0);
}

/// T5X's greedy tokens by caches in bytes: how many are the same up to the first that is not, of networks whose
/// parameters are random, so that the best two logits lie near each other.
TEST(DecodeGolden, CachesInBytesGiveNearlyTheSameTokens) {
  if (!have_fixtures()) GTEST_SKIP() << "no " << decode_file("cases.json");
  const Json config = Json::read(decode_file("cases.json"))["config"];
  for (const bool encoder : {true, false}) {
    const std::string kind = encoder ? "encdec" : "decoder_only";
    const HostArrays parameters = read_safetensors(decode_file(kind + ".params.safetensors"));
    const HostArrays batch = read_safetensors(decode_file(kind + ".batch.safetensors"));
    const PackedNetwork network(spec_from(parameters, config), source_of(parameters));
    const auto predict = [&](CacheType type) {
      const PredictOptions options{
          .decode_fn = BeamOptions{.num_decodes = 1}, .eos_id = -1, .cache_type = type};
      return encoder ? predict_encoder_decoder(network, batch, options)
                     : predict_decoder_only(network, batch, options);
    };
    const Decodes exact = predict(CacheType::native);
    for (const CacheType type : {CacheType::int8, CacheType::fp8}) {
      const Decodes got = predict(type);
      int64_t same = 0;
      double difference = 0;
      for (int64_t i = 0; i < exact.batch; ++i) {
        const auto a = exact.sequence(i, 0), b = got.sequence(i, 0);
        same += std::ranges::mismatch(a, b).in1 - a.begin();
        const auto at = static_cast<size_t>(i);
        difference += std::abs(got.scores[at] - exact.scores[at]) / std::abs(exact.scores[at]);
      }
      const auto all = std::ssize(exact.tokens);
      fmt::print(
          "{}, caches in {}: {} of {} tokens before the first other one, scores differ by "
          "{:.2g} of theirs\n",
          kind, name_of(type), same, all, difference / static_cast<double>(exact.batch));
      EXPECT_GE(same, all * 8 / 10) << kind << " " << name_of(type);
    }
  }
}

/// Networks of fixtures/model that T5X has decoded with.
TEST(DecodeGolden, TokensOfFlaxformersNetworksAreEqual) {
  int checked = 0;
  for (const auto& folder : fixture_folders("model")) {
    if (!std::filesystem::exists(folder / "decode.json")) continue;
    const Json meta = Json::read(folder / "decode.json");
    const Json config = Json::read(folder / "meta.json")["config"];
    const HostArrays parameters =
        layers_apart(read_safetensors(folder / "params.safetensors"), config);
    const HostArrays batch = read_safetensors(folder / "batch.safetensors");
    const HostArrays outputs = read_safetensors(folder / "decode.safetensors");
    const auto model = build_model(config, {});
    load_joined(model->parameters(), parameters);
    const ModelSpec& spec = model->spec();
    const PackedNetwork network(spec, source_of(parameters));
    std::unique_ptr<GpuDecoder> device;
    if (!Device::current().is_cpu()) device = std::make_unique<GpuDecoder>(*model);
    for (const auto& [name, c] : meta["cases"].members()) {
      SCOPED_TRACE(folder.filename().string() + ", " + name);
      PredictOptions options = options_of(c, static_cast<int32_t>(meta["eos_id"].as_int()));
      options.inputs_bidirectional_attention = spec.inputs_bidirectional_attention;
      const auto predict = [&](auto& on) {
        return spec.decoder_only() ? predict_decoder_only(on, batch, options)
                                   : predict_encoder_decoder(on, batch, options);
      };
      expect_decodes(device ? predict(*device) : predict(network), outputs.at(name + "/tokens"),
                     outputs.at(name + "/scores"));
      ++checked;
    }
  }
  EXPECT_GT(checked, 0);
}

/// Feeding the targets token by token gives the teacher-forced logits.
TEST(DecodeGolden, StepsGiveTheLogitsOfTeacherForcing) {
  if (!have_fixtures()) GTEST_SKIP() << "no " << decode_file("cases.json");
  const Json meta = Json::read(decode_file("cases.json"));
  const HostArrays outputs = read_safetensors(decode_file("outputs.safetensors"));
  const HostArrays parameters = read_safetensors(decode_file("encdec.params.safetensors"));
  const HostArrays batch = read_safetensors(decode_file("encdec.batch.safetensors"));
  const PackedNetwork network(spec_from(parameters, meta["config"]), source_of(parameters));
  const HostArray& inputs = batch.at("encoder_input_tokens");
  const HostArray& targets = batch.at("decoder_input_tokens");
  const auto weights = batch.at("decoder_loss_weights").as<int32_t>();
  const auto want = outputs.at("encdec_logits").as<float>();
  const int64_t items = targets.shape[0], length = targets.shape[1];
  const int64_t vocab = network.spec().vocab_size;
  TransformerDecoder decoder(network);
  decoder.begin(inputs.as<int32_t>(), items, inputs.shape[1],
                {.num_decodes = 1, .max_length = length});
  std::vector<int32_t> rows(static_cast<size_t>(items));
  std::iota(rows.begin(), rows.end(), 0);
  for (int64_t t = 0; t < length; ++t) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < items; ++i)
      tokens.push_back(targets.as<int32_t>()[static_cast<size_t>(i * length + t)]);
    const std::vector<int32_t> positions(rows.size(), static_cast<int32_t>(t));
    const auto got =
        decoder.step({.rows = rows, .tokens = tokens, .positions = positions, .sources = {}});
    for (int64_t i = 0; i < items; ++i) {
      if (weights[static_cast<size_t>(i * length + t)] == 0) continue;
      for (int64_t v = 0; v < vocab; ++v) {
        ASSERT_NEAR(got[static_cast<size_t>(i * vocab + v)],
                    want[static_cast<size_t>((i * length + t) * vocab + v)], 1e-4)
            << "item " << i << " position " << t << " token " << v;
      }
    }
  }
}

void expect_near(std::span<const float> want, const auto& got) {
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], static_cast<double>(want[i]), kScoreTolerance) << "number " << i;
}

/// The sum of a row's, as packed parameters have them.
std::vector<double> packed_scores(const ModelSpec& spec, const HostArrays& parameters,
                                  const HostArrays& batch) {
  const PackedNetwork network(spec, source_of(parameters));
  const HostArray weights = unscaled_loss_weights(batch, {});
  return BaseModel::TokenScores{
      target_log_probs(network, batch, std::as_const(weights).as<float>()), {}}
      .sums();
}

TEST(DecodeGolden, ScoresOfTargetsAndOfTheirTokensAreThoseOfScoreBatch) {
  if (!have_fixtures()) GTEST_SKIP() << "no " << decode_file("cases.json");
  const Json config = Json::read(decode_file("cases.json"))["config"];
  const HostArrays outputs = read_safetensors(decode_file("outputs.safetensors"));
  const HostArrays parameters = read_safetensors(decode_file("encdec.params.safetensors"));
  const auto tokens = model_from(parameters, config)
                          ->score_tokens(read_safetensors(decode_file("encdec.batch.safetensors")));
  expect_near(outputs.at("encdec_token_scores").as<float>(), tokens.scores.as<float>());
  expect_near(outputs.at("encdec_score_batch").as<float>(), tokens.sums());
  expect_near(outputs.at("encdec_score_batch").as<float>(),
              packed_scores(spec_from(parameters, config), parameters,
                            read_safetensors(decode_file("encdec.batch.safetensors"))));
  const HostArrays of_decoder = read_safetensors(decode_file("decoder_only.params.safetensors"));
  const HostArrays batch = read_safetensors(decode_file("decoder_only.batch.safetensors"));
  for (const bool bidirectional : {true, false}) {
    const std::string kind = bidirectional ? "prefix_lm" : "causal";
    SCOPED_TRACE(kind);
    const auto model = decoder_only_from(of_decoder, config, bidirectional);
    expect_near(outputs.at(kind + "_score_batch").as<float>(), model->score_tokens(batch).sums());
    expect_near(outputs.at(kind + "_score_batch").as<float>(),
                packed_scores(model->spec(), of_decoder, batch));
  }
}

TEST(DecodeGolden, FiltersKeepTheSameTokens) {
  if (!have_fixtures()) GTEST_SKIP() << "no " << decode_file("cases.json");
  const HostArrays outputs = read_safetensors(decode_file("outputs.safetensors"));
  const HostArray& logits = outputs.at("filters/logits");
  int checked = 0;
  for (const auto& [name, want] : outputs) {
    double temperature = 0, p = 0;
    int k = 0;
    if (!name.ends_with("/masked_logits") ||
        std::sscanf(name.c_str(), "filters/t%lf_k%d_p%lf/", &temperature, &k, &p) != 3)
      continue;
    SCOPED_TRACE(name);
    std::vector<float> scratch;
    for (int64_t r = 0; r < logits.shape[0]; ++r) {
      const auto n = static_cast<size_t>(logits.shape[1]), first = static_cast<size_t>(r) * n;
      std::vector<float> row(logits.as<float>().begin() + first,
                             logits.as<float>().begin() + first + n);
      divide(row, static_cast<float>(temperature));
      if (k > 0) topk_mask(row, k, kNegInf, scratch);
      if (p > 0) topp_mask(row, static_cast<float>(p), kNegInf, scratch);
      for (size_t v = 0; v < n; ++v)
        EXPECT_NEAR(row[v], want.as<float>()[first + v], 1e-5) << "row " << r << " token " << v;
    }
    ++checked;
  }
  EXPECT_GT(checked, 0);
}

TEST(DecodeGolden, BrevityPenaltyAgrees) {
  if (!have_fixtures()) GTEST_SKIP() << "no " << decode_file("cases.json");
  for (const Json& row :
       Json::read(decode_file("cases.json"))["brevity_penalty_alpha_len_value"].items())
    EXPECT_NEAR(brevity_penalty(static_cast<float>(row[0].as_double()),
                                static_cast<float>(row[1].as_double())),
                row[2].as_double(), 1e-6 * row[2].as_double());
}

/// The same logits at every step.
class ConstantLogits : public TokenModel {
 public:
  explicit ConstantLogits(std::span<const float> row) : row_(row.begin(), row.end()) {}
  int64_t vocab_size() const override { return static_cast<int64_t>(row_.size()); }
  std::span<float> step(const StepInput& input) override {
    logits_.clear();
    for (size_t i = 0; i < input.rows.size(); ++i)
      logits_.insert(logits_.end(), row_.begin(), row_.end());
    return logits_;
  }

 private:
  std::vector<float> row_, logits_;
};

/// Chi-square of drawn tokens against the filtered distribution; rare tokens are pooled.
TEST(DecodeGolden, DrawFrequenciesFollowTheFilteredDistribution) {
  if (!have_fixtures()) GTEST_SKIP() << "no " << decode_file("cases.json");
  const Json c = Json::read(decode_file("cases.json"))["cases"]["draw_frequencies"];
  const HostArrays outputs = read_safetensors(decode_file("outputs.safetensors"));
  const auto n = static_cast<size_t>(outputs.at("filters/logits").shape[1]);
  const auto first = static_cast<size_t>(c["logits_row"].as_int()) * n;
  ConstantLogits model(outputs.at("filters/logits").as<float>().subspan(first, n));
  const double temperature = c["temperature"].as_double();
  const int64_t draws = c["draws"].as_int();
  const std::vector<int32_t> start{0};
  SampleOptions options;
  options.decode_rng = key_from_seed(5);
  options.num_decodes = draws;
  options.temperature = {static_cast<float>(temperature)};
  options.topk = c["topk"].as_int();
  const Decodes out = temperature_sample({1, 1, start}, model, 99999, options);
  std::vector<double> counts(n, 0);
  for (int32_t token : out.tokens) counts.at(static_cast<size_t>(token)) += 1;
  const auto probs =
      outputs.at(fmt::format("filters/t{:.1f}_k{}_p0.0/probs", temperature, options.topk))
          .as<float>()
          .subspan(first, n);
  double chi_square = 0, rare_count = 0, rare_expected = 0;
  int cells = 0;
  const auto add = [&](double count, double expected) {
    chi_square += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (size_t v = 0; v < n; ++v) {
    const double expected = static_cast<double>(probs[v]) * static_cast<double>(draws);
    if (expected < 1e-9) {
      EXPECT_EQ(counts[v], 0) << "masked token " << v << " was drawn";
    }
    if (expected < 5) {
      rare_count += counts[v];
      rare_expected += expected;
    } else {
      add(counts[v], expected);
    }
  }
  if (rare_expected > 0) add(rare_count, rare_expected);
  // Mean cells - 1, variance twice that; 5 standard deviations.
  const double freedom = cells - 1;
  EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom));
}

}  // namespace
}  // namespace quintet::testing
