// The step-by-step network: against T5X's teacher-forced logits of fixtures/model, and against
// itself under changes that must not matter.

#include <omp.h>

#include <numeric>
#include <random>

#include "models/decoding/cpu/transformer_decoder.h"
#include "tests/decode/decode_fixture.h"
#include "tests/harness/threads.h"

namespace quintet::testing {
namespace {

using namespace decoding;

template <class Config>
Config read_config(const Json& from) {
  Config c;
  c.vocab_size = from["vocab_size"].as_int();
  c.emb_dim = from["emb_dim"].as_int();
  c.num_heads = from["num_heads"].as_int();
  c.head_dim = from["head_dim"].as_int();
  c.mlp_dim = from["mlp_dim"].as_int();
  c.mlp_activations = from["mlp_activations"].as_strings();
  c.logits_via_embedding = from["logits_via_embedding"].as_bool();
  c.shared_relative_position_bias = !from.has("scan_layers");  // scalable_t5's: in every layer
  return c;
}

ModelSpec read_spec(const Json& from) {
  if (from.has("num_layers")) {
    auto c = read_config<TransformerConfig>(from);
    c.num_layers = from["num_layers"].as_int();
    return spec_of(c);
  }
  auto c = read_config<T5Config>(from);
  c.num_encoder_layers = from["num_encoder_layers"].as_int();
  c.num_decoder_layers = from["num_decoder_layers"].as_int();
  return spec_of(c);
}

std::vector<int32_t> all_rows(int64_t n) {
  std::vector<int32_t> rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

/// Logits [items, length, vocab] of feeding inputs [items, length] one position at a time.
std::vector<float> feed(TransformerDecoder& decoder, std::span<const int32_t> inputs, int64_t items,
                        int64_t length) {
  const int64_t vocab = decoder.vocab_size();
  std::vector<float> all(static_cast<size_t>(items * length * vocab));
  const std::vector<int32_t> rows = all_rows(items);
  for (int64_t t = 0; t < length; ++t) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < items; ++i)
      tokens.push_back(inputs[static_cast<size_t>(i * length + t)]);
    const std::vector<int32_t> positions(rows.size(), static_cast<int32_t>(t));
    const auto logits =
        decoder.step({.rows = rows, .tokens = tokens, .positions = positions, .sources = {}});
    for (int64_t i = 0; i < items; ++i)
      std::copy_n(logits.begin() + i * vocab, vocab, all.begin() + (i * length + t) * vocab);
  }
  return all;
}

/// |got - want| within T1 where `counts` is not 0.
void expect_logits(std::span<const float> got, std::span<const float> want,
                   std::span<const int32_t> counts) {
  ASSERT_EQ(got.size(), want.size());
  const size_t vocab = want.size() / counts.size();
  std::vector<float> a, b;
  for (size_t i = 0; i < want.size(); ++i) {
    if (counts[i / vocab] == 0) continue;
    a.push_back(got[i]);
    b.push_back(want[i]);
  }
  EXPECT_TRUE((near_array(std::span<const float>(a), std::span<const float>(b), kT1)));
}

TEST(DecoderGolden, StepsGiveTheLogitsOfTheModelFixtures) {
  int checked = 0;
  for (const auto& folder : fixture_folders("model")) {
    const std::string name = folder.filename().string();
    if (!name.starts_with("t5_1_") && name != "decoder_only" && name != "scalable_t5_unscanned")
      continue;
    SCOPED_TRACE(name);
    const HostArrays parameters = read_safetensors(folder / "params.safetensors");
    const HostArrays batch = read_safetensors(folder / "batch.safetensors");
    const HostArrays outputs = read_safetensors(folder / "outputs.safetensors");
    const PackedNetwork network(read_spec(Json::read(folder / "meta.json")["config"]),
                                source_of(parameters));
    const HostArray& inputs = batch.at("decoder_input_tokens");
    const int64_t items = inputs.shape[0], length = inputs.shape[1];
    const CacheOptions cache{.num_decodes = 1, .max_length = length};
    TransformerDecoder decoder(network);
    if (network.spec().decoder_only()) {
      const std::vector<int32_t> nothing(static_cast<size_t>(items), 0);
      decoder.begin_prefix(inputs.as<int32_t>(), items, length, nothing, false, cache);
    } else {
      const HostArray& encoder = batch.at("encoder_input_tokens");
      decoder.begin(encoder.as<int32_t>(), items, encoder.shape[1], cache);
    }
    expect_logits(feed(decoder, inputs.as<int32_t>(), items, length),
                  outputs.at("logits").as<float>(),
                  batch.at("decoder_target_tokens").as<int32_t>());
    ++checked;
  }
  if (checked == 0) GTEST_SKIP() << "no model fixtures under " << fixture_root();
}

/// A network of random parameters.
struct RandomNetwork {
  ModelSpec spec;
  mutable std::vector<float> values;

  /// Without encoder layers: a decoder alone.
  explicit RandomNetwork(int64_t encoder_layers, bool tied = false) {
    const auto sizes = [&](auto c) {
      c.vocab_size = 50, c.emb_dim = 20, c.num_heads = 3, c.head_dim = 6, c.mlp_dim = 37;
      c.mlp_activations = {"gelu", "linear"};
      if (tied) c.mlp_activations = {"relu"};
      c.logits_via_embedding = tied;
      return c;
    };
    T5Config both = sizes(T5Config());
    both.num_encoder_layers = encoder_layers;
    TransformerConfig decoder = sizes(TransformerConfig());
    both.num_decoder_layers = decoder.num_layers = 2;
    spec = encoder_layers > 0 ? spec_of(both) : spec_of(decoder);
  }

  int64_t size_of(const std::string& name) const {
    const LayerConfig& layer = spec.decoder.layer;
    const int64_t e = layer.emb_dim;
    if (name.ends_with("scale")) return e;
    if (name.ends_with("embedding") && name.find("relpos") == std::string::npos)
      return e * spec.vocab_size;
    if (name.find("logits") != std::string::npos) return e * spec.vocab_size;
    if (name.find("relpos") != std::string::npos) return layer.num_heads * layer.num_buckets;
    return name.find("mlp") != std::string::npos ? e * layer.mlp_dim : e * layer.joined_kv();
  }
  View operator()(const std::string& name) const {
    std::mt19937 random(static_cast<uint32_t>(std::hash<std::string>()(name)));
    std::normal_distribution<float> normal(0.0f, 0.3f);
    values.resize(static_cast<size_t>(size_of(name)));
    for (float& x : values) x = normal(random) + (name.ends_with("scale") ? 1.0f : 0.0f);
    const auto n = static_cast<int64_t>(values.size());
    if (name.find("relpos") != std::string::npos)
      return View::of(values.data(), std::vector<int64_t>{spec.decoder.layer.num_heads,
                                                          spec.decoder.layer.num_buckets});
    return View::of(values.data(), std::vector<int64_t>{n});
  }
  PackedNetwork pack() const {
    return {spec, [this](const std::string& name) { return (*this)(name); }};
  }
};

std::vector<int32_t> random_tokens(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int32_t& t : tokens) t = static_cast<int32_t>(2 + random() % 48);
  return tokens;
}

void expect_near(std::span<const float> a, std::span<const float> b) {
  EXPECT_TRUE((near_array(a, b, Tolerance{1e-5, 1e-5})));
}

TEST(Decoder, PaddingBatchMatesAndThreadsDoNotMatter) {
  for (const bool tied : {false, true}) {
    const PackedNetwork network = RandomNetwork(2, tied).pack();
    constexpr int64_t kItems = 3, kLength = 9, kSteps = 5;
    std::vector<int32_t> inputs = random_tokens(kItems * kLength, 1);
    for (int64_t t = 4; t < kLength; ++t) inputs[static_cast<size_t>(kLength + t)] = 0;
    const std::vector<int32_t> targets = random_tokens(kItems * kSteps, 2);
    const CacheOptions cache{.num_decodes = 1, .max_length = kSteps};
    TransformerDecoder decoder(network);
    decoder.begin(inputs, kItems, kLength, cache);
    const std::vector<float> together = feed(decoder, targets, kItems, kSteps);
    const size_t row = together.size() / kItems;
    for (size_t i = 0; i < kItems; ++i) {
      std::vector<int32_t> alone(inputs.begin() + static_cast<std::ptrdiff_t>(i) * kLength,
                                 inputs.begin() + static_cast<std::ptrdiff_t>(i + 1) * kLength);
      alone.resize(20, 0);
      decoder.begin(alone, 1, 20, {.num_decodes = 1, .max_length = kSteps + 7});
      expect_near(feed(decoder, std::span(targets).subspan(i * kSteps, kSteps), 1, kSteps),
                  std::span(together).subspan(i * row, row));
    }
    const int threads = omp_get_max_threads();
    for (const int other : {1, 5}) {
      use_threads(other);
      decoder.begin(inputs, kItems, kLength, cache);
      expect_near(feed(decoder, targets, kItems, kSteps), together);
    }
    use_threads(threads);
  }
}

TEST(Decoder, AnItemOfPaddingAloneAndHolesAreReadAsTheirMaskSays) {
  const PackedNetwork network = RandomNetwork(2).pack();
  const std::vector<int32_t> empty(6, 0), pad{0};
  const std::vector<int32_t> targets = random_tokens(3, 3);
  const CacheOptions cache{.num_decodes = 1, .max_length = 3};
  TransformerDecoder decoder(network);
  decoder.begin(empty, 1, 6, cache);
  const std::vector<float> of_many = feed(decoder, targets, 1, 3);
  for (float x : of_many) ASSERT_TRUE(std::isfinite(x));
  decoder.begin(pad, 1, 1, cache);
  expect_near(feed(decoder, targets, 1, 3), of_many);
  // A hole keeps the distances of the tokens around it.
  const std::vector<int32_t> hole{5, 0, 0, 7, 9}, closed{5, 7, 9, 0, 0};
  decoder.begin(hole, 1, 5, cache);
  const std::vector<float> with_hole = feed(decoder, targets, 1, 3);
  decoder.begin(closed, 1, 5, cache);
  const std::vector<float> without = feed(decoder, targets, 1, 3);
  float largest = 0;
  for (size_t i = 0; i < without.size(); ++i)
    largest = std::max(largest, std::abs(without[i] - with_hole[i]));
  EXPECT_GT(largest, 1e-3f);
}

class CacheTypes : public ::testing::TestWithParam<CacheType> {};
INSTANTIATE_TEST_SUITE_P(, CacheTypes,
                         ::testing::Values(CacheType::native, CacheType::int8, CacheType::fp8),
                         [](const auto& named) { return std::string(name_of(named.param)); });

TEST_P(CacheTypes, BeamsThatChangePlacesKeepTheirHistories) {
  const PackedNetwork network = RandomNetwork(1).pack();
  constexpr int32_t kItems = 2, kBeams = 3, kSteps = 8, kRows = kItems * kBeams;
  const std::vector<int32_t> inputs = random_tokens(kItems * 4, 4);
  TransformerDecoder decoder(network);
  decoder.begin(inputs, kItems, 4,
                {.num_decodes = kBeams, .max_length = kSteps, .type = GetParam()});
  std::mt19937 random(5);
  const std::vector<int32_t> rows = all_rows(kRows);
  std::vector<std::vector<int32_t>> histories(kRows);
  std::vector<float> last;
  for (int32_t t = 0; t < kSteps; ++t) {
    std::vector<int32_t> tokens, sources;
    std::vector<std::vector<int32_t>> next;
    for (int32_t r = 0; r < kRows; ++r) {
      sources.push_back(r / kBeams * kBeams + static_cast<int32_t>(random() % kBeams));
      tokens.push_back(static_cast<int32_t>(random() % 50));
      next.push_back(histories[static_cast<size_t>(sources.back())]);
      next.back().push_back(tokens.back());
    }
    histories = next;
    const std::vector<int32_t> positions(kRows, t);
    const auto logits =
        decoder.step({.rows = rows, .tokens = tokens, .positions = positions, .sources = sources});
    last.assign(logits.begin(), logits.end());
  }
  for (size_t r = 0; r < kRows; ++r) {
    TransformerDecoder fresh(network);
    fresh.begin(std::span(inputs).subspan(r / kBeams * 4, 4), 1, 4,
                {.num_decodes = 1, .max_length = kSteps, .type = GetParam()});
    const std::vector<float> all = feed(fresh, histories[r], 1, kSteps);
    expect_near(std::span(last).subspan(r * 50, 50), std::span(all).last(50));
  }
}

/// Near float32's logits, and not equal to them; in a fraction of the bytes: of the vectors of 6, filled up to whole
/// vectors of the machine, of self-attention and of cross-attention.
TEST_P(CacheTypes, ChangeLogitsLittleAndTakeTheirBytes) {
  for (const int64_t encoder_layers : {1, 0}) {
    const PackedNetwork network = RandomNetwork(encoder_layers).pack();
    constexpr int64_t kItems = 2, kInputs = 32, kSteps = 32, kVectors = 2 * 2 * 3;  // of a token
    const std::vector<int32_t> inputs = random_tokens(kItems * kInputs, 4),
                               targets = random_tokens(kItems * kSteps, 8);
    TransformerDecoder decoder(network);
    const auto logits_of = [&](CacheType type) {
      const CacheOptions cache{.num_decodes = 1, .max_length = kSteps, .type = type};
      if (encoder_layers > 0)
        decoder.begin(inputs, kItems, kInputs, cache);
      else
        decoder.begin_prefix(inputs, kItems, kInputs, std::vector<int32_t>{9, 0}, false, cache);
      return feed(decoder, targets, kItems, kSteps);
    };
    const std::vector<float> got = logits_of(GetParam());
    const int64_t bytes = decoder.cache_bytes();
    EXPECT_EQ(bytes,
              4 * kItems * kVectors *
                  (kSteps * cached_floats(6, GetParam()) +
                   (encoder_layers > 0 ? SharedKeys::floats(kInputs, 6, GetParam()) / 2 : 0)));
    const int64_t of_a_token = 4 * kItems * kVectors * cached_floats(6, GetParam());
    EXPECT_EQ(decoder.read_bytes(kSteps - 1), bytes);
    EXPECT_EQ(decoder.read_bytes(0), bytes - (kSteps - 1) * of_a_token);
    if (GetParam() == CacheType::native) continue;
    const std::vector<float> exact = logits_of(CacheType::native);
    double difference = 0, size = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      difference += (got[i] - exact[i]) * (got[i] - exact[i]);
      size += exact[i] * exact[i];
    }
    // Of the root mean square: a step of int8 is 2^-7 of the largest number of a vector, of fp8 2^-3 of each. Logits of
    // attention are not scaled, so that these networks' random parameters make much of it.
    const double relative = std::sqrt(difference / size);
    EXPECT_LT(relative, GetParam() == CacheType::fp8 ? 0.2 : 0.02);
    EXPECT_GT(relative, 1e-4);
  }
}

TEST(Decoder, APrefixReadAtOnceEqualsOneReadTokenByToken) {
  const PackedNetwork network = RandomNetwork(0).pack();
  constexpr int64_t kItems = 2, kLength = 10;
  const std::vector<int32_t> tokens = random_tokens(kItems * kLength, 6);
  const CacheOptions cache{.num_decodes = 1, .max_length = kLength};
  TransformerDecoder decoder(network);
  decoder.begin_prefix(tokens, kItems, kLength, std::vector<int32_t>{0, 0}, false, cache);
  const std::vector<float> all = feed(decoder, tokens, kItems, kLength);
  const std::vector<int32_t> prefix{7, 3};
  decoder.begin_prefix(tokens, kItems, kLength, prefix, false, cache);
  const std::vector<int32_t> rows{0, 1}, now{tokens[7], tokens[10 + 3]};
  const auto logits =
      decoder.step({.rows = rows, .tokens = now, .positions = prefix, .sources = {}});
  expect_near(logits.first(50), std::span(all).subspan(7 * 50, 50));
  expect_near(logits.last(50), std::span(all).subspan((10 + 3) * 50, 50));
}

TEST(Decoder, RowsMayRestAndPositionsPassTheEnd) {
  const PackedNetwork network = RandomNetwork(0).pack();
  const std::vector<int32_t> tokens = random_tokens(6, 7);
  TransformerDecoder decoder(network);
  decoder.begin_prefix(tokens, 2, 3, std::vector<int32_t>{3, 3}, true,
                       {.num_decodes = 1, .max_length = 3});
  const std::vector<int32_t> row{1}, token{4}, beyond{3}, far{9};
  const auto at = [&](const std::vector<int32_t>& position) {
    const auto logits =
        decoder.step({.rows = row, .tokens = token, .positions = position, .sources = {}});
    return std::vector<float>(logits.begin(), logits.end());
  };
  EXPECT_EQ(at(beyond), at(far));  // nothing is written there, no bias is added
}

TEST(Decoder, MistakesAreNamed) {
  const RandomNetwork random(2);
  const auto fails = [&](const ParameterSource& source, const ModelSpec& spec,
                         const std::string& part) {
    try {
      const PackedNetwork network(spec, source);
      FAIL() << "no error about " << part;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  ModelSpec wide = random.spec;
  wide.decoder.layer.mlp_dim = wide.encoder->layer.mlp_dim += 1;
  fails([&](const std::string& name) { return random(name); }, wide, "mlp");
  ModelSpec empty = random.spec;
  empty.decoder.layer.num_heads = 0;
  fails([&](const std::string& name) { return random(name); }, empty, "positive");

  const PackedNetwork network = random.pack();
  TransformerDecoder decoder(network);
  const std::vector<int32_t> inputs{3, 4}, outside{3, 50};
  EXPECT_THROW(decoder.begin({}, 0, 0, {.num_decodes = 1, .max_length = 4}), Error);
  EXPECT_THROW(decoder.begin(inputs, 1, 2, {.num_decodes = 1, .max_length = 0}), Error);
  EXPECT_THROW(decoder.begin(outside, 1, 2, {.num_decodes = 1, .max_length = 4}), Error);
  EXPECT_THROW(decoder.begin_prefix(inputs, 1, 2, std::vector<int32_t>{1}, false,
                                    {.num_decodes = 1, .max_length = 4}),
               Error);
}

}  // namespace
}  // namespace quintet::testing
