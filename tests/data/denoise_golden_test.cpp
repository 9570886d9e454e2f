// Noise masks, what becomes of them, and span corruption as a whole.
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "data/preprocessors/denoise.h"
#include "tests/data/rows.h"
#include "tests/harness/fixtures.h"

namespace quintet::data {
namespace {

using ::quintet::testing::fixture_root;
using testing::examples_of;
using testing::lengths_of;

std::filesystem::path seqio_file(const std::string& name) {
  return fixture_root() / "seqio" / name;
}

TEST(DenoiseGolden, NoiseFunctionsOnFixedMasks) {
  const auto file = seqio_file("denoise_fixed_masks.jsonl");
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  Random random(key_from_seed(0));
  for (const Json& row : Json::read_lines(file)) {
    const PassThroughVocabulary vocabulary(static_cast<int32_t>(row["vocab_size"].as_int()), 1);
    const auto tokens = row["tokens"].raw().get<Tokens>();
    const auto mask = row["noise_mask"].raw().get<NoiseMask>();
    for (const auto& [name, want] : row["outputs"].members())
      EXPECT_EQ((*noise_fn(name))(tokens, mask, vocabulary, random), want.raw().get<Tokens>())
          << row.path() << " " << name;
  }
}

TEST(DenoiseGolden, RandomSpansHelperTable) {
  const auto file = seqio_file("random_spans_helper.json");
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  const Json table = Json::read(file);
  std::map<std::string, size_t> column;
  for (const std::string& name : table["columns"].as_strings()) column.emplace(name, column.size());
  for (const Json& row : table["rows"].items()) {
    const auto at = [&](const char* name) { return row[column.at(name)]; };
    const SpansLengths got = random_spans_helper(
        at("inputs_length").as_int(), at("noise_density").as_double(),
        at("mean_noise_span_length").as_double(), at("extra_tokens_per_span_inputs").as_int(),
        at("extra_tokens_per_span_targets").as_int());
    EXPECT_EQ(got.tokens_length, at("tokens_length").as_int()) << row.raw().dump();
    EXPECT_EQ(got.targets_length, at("targets_length").as_int()) << row.raw().dump();
  }
}

/// Mean and spread of numbers.
struct Statistics {
  double sum = 0, squares = 0, least = 1e300, most = -1e300;
  int64_t count = 0;
  void add(double x) {
    sum += x;
    squares += x * x;
    least = std::min(least, x);
    most = std::max(most, x);
    ++count;
  }
  double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
  double deviation() const {
    return count == 0
               ? 0
               : std::sqrt(std::max(0.0, squares / static_cast<double>(count) - mean() * mean()));
  }
};

std::vector<int64_t> span_lengths(const NoiseMask& mask) {
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (!mask[i]) continue;
    if (i == 0 || !mask[i - 1]) lengths.push_back(0);
    ++lengths.back();
  }
  return lengths;
}

std::unique_ptr<NoiseMaskFn> mask_fn(const Json& row) {
  const std::string fn = row.has("fn") ? row["fn"].as_string() : "random_spans_noise_mask";
  if (fn == "iid_noise_mask") return std::make_unique<IidNoiseMask>();
  if (fn == "regular_noise_mask") return std::make_unique<RegularNoiseMask>();
  if (fn == "random_prefix_noise_mask") return std::make_unique<RandomPrefixNoiseMask>();
  EXPECT_EQ(fn, "random_spans_noise_mask");
  auto spans = std::make_unique<RandomSpansNoiseMask>();
  spans->mean_noise_span_length = row["mean_noise_span_length"].as_double();
  spans->random_roll = row["random_roll"].as_bool();
  return spans;
}

/// Two means over `draws` each differ by no more than 4 standard errors of their difference (and a
/// little, for distributions without spread).
void expect_mean(double got, const Json& row, const char* name, double deviation, double draws) {
  if (!row.has(name) || row[name].is_null()) return;
  const double limit = 4 * deviation * std::sqrt(2 / std::max(1.0, draws)) + 1e-6;
  EXPECT_NEAR(got, row[name].as_double(), limit) << row.raw().dump() << " " << name;
}

TEST(DenoiseGolden, NoiseMaskStatistics) {
  const auto file = seqio_file("noise_mask_statistics.json");
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  for (const Json& row : Json::read(file).items()) {
    const auto mask_of = mask_fn(row);
    const int64_t length = row["length"].as_int(), draws = row["draws"].as_int();
    Statistics density, spans, span_length, first, prefix;
    for (int64_t i = 0; i < draws; ++i) {
      Random random(split_at(key_from_seed(11), static_cast<uint64_t>(i)));
      const NoiseMask mask = (*mask_of)(length, row["noise_density"].as_double(), random);
      ASSERT_EQ(static_cast<int64_t>(mask.size()), length);
      const double noise = std::accumulate(mask.begin(), mask.end(), 0.0);
      density.add(noise / static_cast<double>(length));
      prefix.add(noise);
      const auto lengths = span_lengths(mask);
      spans.add(static_cast<double>(lengths.size()));
      for (int64_t n : lengths) span_length.add(static_cast<double>(n));
      first.add(mask.front());
    }
    const auto n = static_cast<double>(draws);
    expect_mean(density.mean(), row, "density_mean", density.deviation(), n);
    expect_mean(spans.mean(), row, "spans_per_draw_mean", spans.deviation(), n);
    // Spans of one mask share its tokens, so the masks are what counts as independent.
    expect_mean(span_length.mean(), row, "span_length_mean", span_length.deviation(), n);
    expect_mean(first.mean(), row, "first_token_noise_fraction", first.deviation(), n);
    expect_mean(prefix.mean(), row, "prefix_mean", prefix.deviation(), n);
    if (row.has("prefix_min")) {
      EXPECT_EQ(prefix.least, row["prefix_min"].as_double()) << row.raw().dump();
      EXPECT_EQ(prefix.most, row["prefix_max"].as_double()) << row.raw().dump();
    }
    if (row.has("density_std") && row["density_std"].as_double() < 1e-6) {
      EXPECT_LT(density.deviation(), 1e-6) << "the number of noise tokens is fixed";
      EXPECT_LE(spans.most, row["spans_per_draw_max"].as_double());
      EXPECT_GE(spans.least, std::min(1.0, row["spans_per_draw_min"].as_double()));
    }
  }
}

/// Puts targets' spans back where inputs have sentinels; -1 in the result if they do not fit.
Tokens stitch(const Tokens& inputs, const Tokens& targets, int32_t vocab_size) {
  const auto is_sentinel = [&](int32_t id) { return id >= vocab_size / 2; };
  Tokens out;
  size_t at = 0;
  int32_t expected = vocab_size - 1;
  for (int32_t id : inputs) {
    if (!is_sentinel(id)) {
      out.push_back(id);
      // Targets stand for this run of text by one sentinel, met below.
      continue;
    }
    if (id != expected) out.push_back(-1);
    --expected;
    while (at < targets.size() && is_sentinel(targets[at])) ++at;
    while (at < targets.size() && !is_sentinel(targets[at])) out.push_back(targets[at++]);
  }
  if (at != targets.size() && !(at + 1 == targets.size() && is_sentinel(targets[at])))
    out.push_back(-1);
  return out;
}

TEST(DenoiseGolden, SpanCorruptionKeepsEveryTokenAndFillsItsLength) {
  for (const bool merge : {false, true}) {
    const auto file =
        seqio_file(merge ? "span_corruption_merge1.json" : "span_corruption_merge0.json");
    if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
    SCOPED_TRACE(file);
    const Json json = Json::read(file);
    const auto vocab_size = static_cast<int32_t>(json["vocab_size"].as_int());
    const auto vocabulary = std::make_shared<PassThroughVocabulary>(vocab_size, 1);
    const PreprocessContext context{{{"inputs", {vocabulary}}, {"targets", {vocabulary}}},
                                    lengths_of(json["sequence_length"])};
    SpanCorruption corrupt;
    corrupt.merge_examples_to_reduce_padding = merge;
    StreamPtr stream = corrupt.apply(stream_of(examples_of(json["docs"].raw())), context);
    const auto got = collect(*stream);
    EXPECT_EQ(got.size(), json["outputs"].size());

    const int64_t inputs_length = *find_length(*context.sequence_length, "inputs");
    Tokens all, want;
    for (size_t i = 0; i < got.size(); ++i) {
      const Tokens &inputs = got[i].tokens("inputs"), &targets = got[i].tokens("targets");
      // As long as seqio's, whatever was drawn: sizes follow from the lengths alone.
      EXPECT_EQ(inputs.size(), json["outputs"][i]["inputs"].size());
      EXPECT_EQ(targets.size(), json["outputs"][i]["targets"].size());
      EXPECT_LT(static_cast<int64_t>(inputs.size()), inputs_length);  // room for EOS
      const Tokens text = stitch(inputs, targets, vocab_size);
      all.insert(all.end(), text.begin(), text.end());
    }
    for (const Json& doc : json["docs"].items()) {
      const auto tokens = doc["targets"].raw().get<Tokens>();
      want.insert(want.end(), tokens.begin(), tokens.end());
    }
    EXPECT_EQ(all, want);
  }
}

}  // namespace
}  // namespace quintet::data
