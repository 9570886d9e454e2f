// fixtures/seqio/pack.json and feature_converters.jsonl.
#include <nlohmann/json.hpp>

#include "data/converters/feature_converter.h"
#include "data/converters/packing.h"
#include "data/preprocessors/token_preprocessors.h"
#include "tests/data/rows.h"
#include "tests/harness/fixtures.h"

namespace quintet::data {
namespace {

using ::quintet::testing::fixture_root;
using testing::collect_json;
using testing::features_of;
using testing::lengths_of;
using testing::rows;

Features features_by_name(const Json& case_json) {
  const auto vocabulary = std::make_shared<PassThroughVocabulary>(99, 1);
  if (case_json.has("add_eos")) return features_of(case_json["add_eos"], vocabulary);
  return features_of(Json::parse(R"({"inputs": true, "targets": false})"), vocabulary);
}

StreamPtr run(const std::string& fn, const Json& case_json, StreamPtr input) {
  PreprocessContext context{features_by_name(case_json), std::nullopt};
  for (const char* key : {"feature_lengths", "sequence_length"})
    if (case_json.has(key) && !case_json[key].is_null())
      context.sequence_length = lengths_of(case_json[key]);
  if (fn == "trim_and_pack_dataset")
    return trim_and_pack(std::move(input), *context.sequence_length);
  if (fn == "trim_and_pad_dataset") return trim_and_pad(std::move(input), *context.sequence_length);
  if (fn == "trim_dataset") return trim_output_features(std::move(input), context);
  if (fn == "append_eos") return AppendEos{}.apply(std::move(input), context);
  if (fn == "append_eos_after_trim") return AppendEosAfterTrim{}.apply(std::move(input), context);
  return nullptr;
}

Tokens tokens_of(const Json& json) { return json.raw().get<Tokens>(); }

TEST(PackGolden, TrimsPadsPacksAndShiftsAsSeqioDoes) {
  const auto file = fixture_root() / "seqio" / "pack.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  for (const Json& item : Json::read(file).items()) {
    const std::string fn = item["fn"].as_string();
    SCOPED_TRACE(item.path() + " " + fn);
    if (fn == "make_autoregressive_inputs") {
      for (const Json& one : item["cases"].items())
        EXPECT_EQ(make_autoregressive_inputs(
                      tokens_of(one["targets"]),
                      one.has("sequence_id") ? tokens_of(one["sequence_id"]) : Tokens{},
                      static_cast<int32_t>(one["bos_id"].as_int())),
                  tokens_of(one["output"]))
            << one.path();
      continue;
    }
    StreamPtr stream = run(fn, item, rows(item["inputs"]));
    ASSERT_NE(stream, nullptr) << "no such function here";
    EXPECT_EQ(collect_json(*stream), nlohmann::json(item["outputs"].raw()));
  }
}

FeatureConverterPtr converter_of(const std::string& name, const Json& args) {
  ConverterOptions options;
  for (const auto& [key, value] : args.members()) {
    if (key == "pack") options.pack = value.as_bool();
    if (key == "bos_id") options.bos_id = static_cast<int32_t>(value.as_int());
    if (key == "mask_id") options.mask_id = static_cast<int32_t>(value.as_int());
    if (key == "loss_on_targets_only") options.loss_on_targets_only = value.as_bool();
    if (key == "apply_length_check") options.apply_length_check = value.as_bool();
    if (key != "passthrough_features") continue;
    for (const auto& [feature, spec] : value.members())
      options.passthrough_features.push_back({.name = feature,
                                              .type = spec["dtype"].as_string() == "float32"
                                                          ? FeatureType::float32
                                                          : FeatureType::int32,
                                              .rank = static_cast<size_t>(spec["rank"].as_int())});
  }
  return make_feature_converter(name, options);
}

class FeatureConvertersGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(FeatureConvertersGolden, GiveSeqiosModelFeatures) {
  const auto file = fixture_root() / "seqio" / GetParam();
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  int compared = 0;
  for (const Json& row : Json::read_lines(file)) {
    const std::string name = row["converter"].as_string();
    SCOPED_TRACE(row.path() + " " + name + " " + row["args"].raw().dump());
    const Lengths lengths = lengths_of(row["task_feature_lengths"]);
    ++compared;
    const auto convert = [&] {
      StreamPtr stream = converter_of(name, row["args"])->convert(rows(row["inputs"]), lengths);
      return collect(*stream);
    };
    if (row.has("error")) {
      EXPECT_THROW(convert(), Error) << row["error"].as_string();
      continue;
    }
    const std::vector<Example> got = convert();
    nlohmann::json json = nlohmann::json::array();
    for (const Example& example : got) json.push_back(testing::json_of(example));
    EXPECT_EQ(json, nlohmann::json(row["outputs"].raw()));
    for (const auto& [feature, type] : row["output_dtypes"].members())
      EXPECT_NO_THROW(
          check_type(got.front(), feature,
                     type.as_string() == "float32" ? FeatureType::float32 : FeatureType::int32,
                     rank_of(got.front().at(feature))))
          << type.as_string();
    if (!row.has("model_feature_lengths") || row["model_feature_lengths"].is_null()) continue;
    const Lengths model = converter_of(name, row["args"])->model_feature_lengths(lengths);
    const Json want = row["model_feature_lengths"];
    EXPECT_EQ(model.size(), want.size());
    for (const auto& [feature, length] : model)
      EXPECT_EQ(length, want[feature].as_int()) << feature;
  }
  EXPECT_GT(compared, 0);
}
INSTANTIATE_TEST_SUITE_P(Files, FeatureConvertersGolden,
                         ::testing::Values("feature_converters.jsonl",
                                           "more/feature_converters.jsonl"));

}  // namespace
}  // namespace quintet::data
