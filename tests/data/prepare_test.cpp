// Data sets from archives, against what TFDS makes of the same archives (tests/oracles/gen_tfds_prepare.py).
#include "data/prepare/prepare.h"

#include <nlohmann/json.hpp>

#include "data/evaluation/json_values.h"
#include "data/examples/data_source.h"
#include "data/prepare/parallel_text.h"
#include "runtime/base/formats/json.h"
#include "tests/data/files.h"
#include "tests/harness/fixtures.h"

namespace quintet::data {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::message_of;
using Prepare = testing::FileTest;

const fs::path kFixture = ::quintet::testing::fixture_root() / "tfds_prepare";

/// TFDS's nested features by our names, single numbers as they are.
void flatten(const nlohmann::ordered_json& json, const std::string& name,
             nlohmann::ordered_json& out) {
  if (!json.is_object()) {
    out[name] = json;
    return;
  }
  for (const auto& [key, value] : json.items())
    flatten(value, name.empty() ? key : name + "/" + key, out);
}

nlohmann::ordered_json json_of(const Example& example) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, value] : example.items()) json[name] = value_json(value);
  return json;
}

TEST_F(Prepare, MakesWhatTfdsMakes) {
  if (!fs::exists(kFixture)) GTEST_SKIP() << "no " << kFixture;
  for (const auto& [name, want] : Json::read(kFixture / "datasets.json").members()) {
    SCOPED_TRACE(name);
    const Prepared prepared =
        prepare(name, kFixture / "archives" / want["archive"].as_string(), folder_);
    EXPECT_EQ(prepared.folder, folder_ / name / want["version"].as_string());
    for (const auto& [file, contents] : want["files"].members())
      if (contents.is_string())
        EXPECT_EQ(read_file(prepared.folder / file),
                  contents.as_string() + (contents.as_string().ends_with('\n') ? "" : "\n"));
      else
        EXPECT_EQ(nlohmann::json(Json::read(prepared.folder / file).raw()),
                  nlohmann::json(contents.raw()));
    const TfdsDataSource source("", prepared.folder.string());
    for (const auto& [split, examples] : want["splits"].members()) {
      SCOPED_TRACE(split);
      StreamPtr stream = read_stream(source.open(split), {.epochs = 1});
      const std::vector<Example> got = collect(*stream);
      ASSERT_EQ(got.size(), examples.size());
      for (size_t i = 0; i < got.size(); ++i) {
        nlohmann::ordered_json flat = nlohmann::ordered_json::object(), mine = json_of(got[i]);
        flatten(examples[i].raw(), "", flat);
        for (auto& [feature, value] : flat.items())
          if (value.is_boolean()) value = int{value.get<bool>()};
        EXPECT_EQ(nlohmann::json(mine), nlohmann::json(flat)) << i;
      }
    }
    const Json info = Json::read(prepared.folder / "dataset_info.json");
    for (const Json& split : info["splits"].items()) {
      const Json sizes = want["sizes"][split["name"].as_string()];
      EXPECT_EQ(split["numBytes"].as_string(), std::to_string(sizes[0].as_int()));
      EXPECT_EQ(split["shardLengths"].size(), sizes[1].size());
    }
  }
}

TEST_F(Prepare, TheOnlyConfigurationNeedsNoName) {
  if (!fs::exists(kFixture)) GTEST_SKIP() << "no " << kFixture;
  prepare("the_pile/lm", kFixture / "archives/the_pile", folder_);
  const TfdsDataSource named("ThePile:1.0.0", folder_.string());  // as T5X's tasks call it
  EXPECT_EQ(named.splits().size(), 3u);
}

TEST(PrepareShards, AreAsManyAsTfdsWrites) {
  constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;
  EXPECT_EQ(tfds_num_shards(127 * kMiB, 1'000'000), 2);  // with their frames above 128 MiB
  EXPECT_EQ(tfds_num_shards(127 * kMiB, 10), 1);
  EXPECT_EQ(tfds_num_shards(800 * kMiB, 3), 2);
  EXPECT_EQ(tfds_num_shards(10 * kGiB, 100'000), 128);
  EXPECT_EQ(tfds_num_shards(800 * kGiB, 400'000'000), 1024);
  EXPECT_EQ(tfds_num_shards(3000 * kGiB, 400'000'000), 3072);
  EXPECT_EQ(tfds_shard_lengths(10, 4), (std::vector<int64_t>{2, 3, 3, 2}));  // 2.5 is 2, 7.5 is 8
  EXPECT_EQ(tfds_shard_lengths(7, 1), std::vector<int64_t>{7});
}

TEST_F(Prepare, WrongArchivesAreErrorsAndLeaveNoDataSet) {
  const auto said = [&](ExitCode code, const std::string& name, const fs::path& from) {
    return message_of(code, [&] { prepare(name, from, folder_ / "out"); });
  };
  EXPECT_TRUE(contains(said(ExitCode::kUsage, "glue/colla", folder_), "did you mean 'glue/cola'"));
  EXPECT_TRUE(contains(said(ExitCode::kData, "glue/cola", folder_), "CoLA/train.tsv: is missing"));
  for (const char* part : {"train", "dev"})
    write(fmt::format("{}.tsv", part), "a\t1\t\tA sentence.\nb\t2\t*\tAnother.\n");
  write("test.tsv", "index\tsentence\n0\tOne.\n");
  EXPECT_TRUE(contains(said(ExitCode::kData, "glue/cola", folder_),
                       "train.tsv: example 1: label 2 is none of the 2 classes"));
  for (const char* part : {"train", "dev"}) write(fmt::format("{}.tsv", part), "a\t1\t\tA.\n");
  write("test.tsv", "index\ttext\n0\tOne.\n");
  EXPECT_TRUE(contains(said(ExitCode::kData, "glue/cola", folder_),
                       "test.tsv: has no column 'sentence'; there are index, text"));
  EXPECT_FALSE(fs::exists(folder_ / "out/glue/cola/2.0.0"));
  write("test.tsv", "index\tsentence\n0\tOne.\n");
  prepare("glue/cola", folder_, folder_ / "out");
  EXPECT_TRUE(contains(said(ExitCode::kData, "glue/cola", folder_), "is there already"));
  EXPECT_EQ(prepare("glue/cola:1.0.0", folder_, folder_ / "out").folder.filename(), "1.0.0");
  EXPECT_TRUE(contains(said(ExitCode::kUsage, "glue/cola:3.0.0", folder_), "1.0.0, 1.0.1, 2.0.0"));
  const char* twice = R"({"data": [{"paragraphs": [{"context": "c", "qas": [
      {"id": "a", "question": "q", "answers": [], "is_impossible": true},
      {"id": "a", "question": "r", "answers": [], "is_impossible": true}]}]}]})";
  for (const char* part : {"train", "dev"}) write(fmt::format("{}-v2.0.json", part), twice);
  EXPECT_TRUE(
      contains(said(ExitCode::kData, "squad/v2.0", folder_), "two examples have the same key"));
}

/// Of units of a TMX, as they are published beside plain text.
TEST_F(Prepare, ReadsEntitiesAndRefusesWhatIsNone) {
  const auto read = [&](const std::string& text) {
    std::string found;
    read_tmx(write("pairs.tmx", "<tu><tuv xml:lang=\"en\"><seg>" + text + "</seg></tuv></tu>"),
             [&](const std::string&, const Sentences& pair) { found = pair.at("en"); });
    return found;
  };
  EXPECT_EQ(read("a &amp; b &#x41;&#66;"), "a & b AB");
  for (const char* wrong : {"&;", "&#;", "&#x110000;", "&nope;"})
    EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { read(wrong); }), "unknown entity"))
        << wrong;
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { read("a & " + std::string(100, 'b')); }),
                       "has no ';' after ' bbbbbbbbbbb'"));
}

}  // namespace
}  // namespace quintet::data
