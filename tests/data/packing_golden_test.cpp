// fixtures/seqio/pack.json and feature_converters.jsonl.
#include <set>

#include "data/feature_converter.h"
#include "data/packing.h"
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
  Context context{features_by_name(case_json), std::nullopt};
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

FeatureConverterPtr converter_of(const std::string& name, const Json& args,
                                 const Lengths& lengths) {
  ConverterOptions options;
  if (args.has("pack")) options.pack = args["pack"].as_bool();
  if (args.has("bos_id")) options.bos_id = static_cast<int32_t>(args["bos_id"].as_int());
  if (args.has("loss_on_targets_only"))
    options.loss_on_targets_only = args["loss_on_targets_only"].as_bool();
  return name == "DecoderFeatureConverter" ? decoder_feature_converter(lengths, options)
                                           : make_feature_converter(name, options);
}

TEST(FeatureConvertersGolden, GiveSeqiosModelFeatures) {
  const std::set<std::string> supported = {"EncDecFeatureConverter", "LMFeatureConverter",
                                           "PrefixLMFeatureConverter", "DecoderFeatureConverter"};
  const auto file = fixture_root() / "seqio" / "feature_converters.jsonl";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  std::map<std::string, int> left_out;
  int compared = 0;
  for (const Json& row : Json::read_lines(file)) {
    const std::string name = row["converter"].as_string();
    if (!supported.count(name)) {
      ++left_out[name];
      continue;
    }
    SCOPED_TRACE(row.path() + " " + name + " " + row["args"].raw().dump());
    const Lengths lengths = lengths_of(row["task_feature_lengths"]);
    ++compared;
    const auto convert = [&] {
      const auto converter = converter_of(name, row["args"], lengths);
      StreamPtr stream = converter->convert(rows(row["inputs"]), lengths);
      return collect_json(*stream);
    };
    if (row.has("error")) {
      EXPECT_THROW(convert(), Error) << row["error"].as_string();
      continue;
    }
    EXPECT_EQ(convert(), nlohmann::json(row["outputs"].raw()));
    const auto converter = converter_of(name, row["args"], lengths);
    const Lengths model = converter->model_feature_lengths(lengths);
    const Json want = row["model_feature_lengths"];
    EXPECT_EQ(model.size(), want.size());
    for (const auto& [feature, length] : model)
      EXPECT_EQ(length, want[feature].as_int()) << feature;
    for (const auto& [feature, type] : row["output_dtypes"].members())
      EXPECT_EQ(type.as_string(), "int32") << feature;  // the type that Batches gives
  }
  EXPECT_GT(compared, 0);
  for (const auto& [name, count] : left_out)
    std::cout << "left out: " << count << " rows of " << name
              << ", not one of our converters yet\n";
}

}  // namespace
}  // namespace quintet::data
