// seqio's own caches: what they hold, in which order, for every shard; and ours in their form.
#include <nlohmann/json.hpp>

#include "data/batches/batches.h"
#include "data/cache/cache_writer.h"
#include "data/converters/feature_converter.h"
#include "data/examples/tf_example.h"
#include "data/preprocessors/text_preprocessors.h"
#include "data/preprocessors/token_preprocessors.h"
#include "data/tasks/cache_folder.h"
#include "runtime/base/formats/json.h"
#include "runtime/base/formats/tfrecord.h"
#include "tests/data/files.h"
#include "tests/data/rows.h"
#include "tests/harness/fixtures.h"

namespace quintet::data {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::json_of;

fs::path fixture() { return quintet::testing::fixture_root() / "seqio/cache"; }

/// The fixture's lines: inputs, targets, idx, score, id.
struct ParseLine final : Preprocessor {
  StreamPtr apply(StreamPtr input, const PreprocessContext&) const override {
    return map_stream(std::move(input), [](Example& example) {
      std::string line = example.text("text");
      std::vector<std::string> fields;
      for (size_t at = 0; at <= line.size();) {
        const size_t end = std::min(line.find('\t', at), line.size());
        fields.push_back(line.substr(at, end - at));
        at = end + 1;
      }
      example.clear();
      example.set("inputs", fields.at(0));
      example.set("targets", fields.at(1));
      example.set("idx", int64_t{std::stoll(fields.at(2))});
      example.set("score", static_cast<double>(std::stof(fields.at(3))));
      example.set("id", fields.at(4));
      return true;
    });
  }
};

Task task_of(const std::string& name) {
  const auto raw = [](const char* file) { return (fixture() / "raw" / file).string(); };
  const SplitToFiles files = name == "oracle_tsv"
                                 ? SplitToFiles{{"train", {raw("train-0.tsv"), raw("train-1.tsv")}},
                                                {"validation", {raw("val.tsv")}}}
                                 : SplitToFiles{{"train", {raw("wide.tsv")}}};
  const auto vocabulary = std::make_shared<ByteVocabulary>(20);
  return Task({.name = name,
               .source = std::make_shared<TextLineDataSource>(files),
               .preprocessors = {std::make_shared<ParseLine>(), std::make_shared<Tokenize>(),
                                 std::make_shared<CacheDatasetPlaceholder>(),
                                 std::make_shared<AppendEos>()},
               .output_features = {{"inputs", {vocabulary}}, {"targets", {vocabulary}}}});
}

StreamOptions options_of(const Json& row) {
  StreamOptions options{.split = row["split"].as_string(), .epochs = 1};
  options.use_cached = !row.has("use_cached") || row["use_cached"].as_bool();
  options.cache_dirs = {(fixture() / "cache").string()};
  if (row.has("num_epochs")) options.epochs = row["num_epochs"].as_int();
  options.sequence_length = {{"inputs", 40},
                             {"targets", 10}};  // gen_seqio_cache.py's, where rows say none
  if (row.has("sequence_length"))
    options.sequence_length = testing::lengths_of(row["sequence_length"]);
  return options;
}

std::vector<int64_t> order_of(Stream& stream) {
  std::vector<int64_t> order;
  for (const Example& example : collect(stream))
    order.push_back(std::get<int64_t>(example.at("idx")));
  return order;
}

void compare_examples(const std::vector<Json>& want, const std::vector<Example>& got) {
  ASSERT_GE(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    for (const auto& [name, value] : want[i].members())
      EXPECT_EQ(nlohmann::json(value.raw()), nlohmann::json(json_of(got[i].at(name))))
          << i << " " << name;
}

void check_row(const Json& row) {
  const Task task = task_of(row["task"].as_string());
  const StreamOptions options = options_of(row);
  const bool is_shuffled = row.has("shuffle") && row["shuffle"].as_bool();
  if (row.has("num_shards")) {
    const ShardInfo shard{row["shard_index"].as_int(), row["num_shards"].as_int()};
    const auto reader = task.source(options)->open_shard(options.split, shard);
    StreamPtr stream = read_stream(reader, {.epochs = 1});
    const auto order = order_of(*stream);
    EXPECT_EQ(order, row["order"].as_ints());
    if (row.has("skip_5_order_head")) {
      const auto head = row["skip_5_order_head"].as_ints();
      EXPECT_EQ((std::vector<int64_t>{order.begin() + 5, order.begin() + 5 + std::ssize(head)}),
                head);
    }
    if (row.has("examples")) {
      StreamPtr whole = task.stream(options);
      const auto got = collect(*whole);
      EXPECT_EQ(got.size(), row["examples"].size());
      compare_examples(row["examples"].items(), got);
    }
  } else if (row.has("feature_converter")) {
    const auto converter = make_feature_converter("EncDecFeatureConverter", {.pack = true});
    StreamPtr stream = converter->convert(task.stream(options), *options.sequence_length);
    const auto got = collect(*stream);
    EXPECT_EQ(std::ssize(got), row["count"].as_int());
    compare_examples(row["examples"].items(), got);
  } else if (row.has("cached_stats")) {
    const auto folder = find_cache(task.name(), options.cache_dirs);
    ASSERT_TRUE(folder.has_value());
    EXPECT_EQ(Json::read(cache_stats_file(*folder, options.split)).raw(),
              row["cached_stats"].raw());
  } else {
    StreamPtr stream = task.stream(options);
    const auto got = collect(*stream);
    if (row.has("examples")) compare_examples(row["examples"].items(), got);
    if (!row.has("order")) return;
    auto want = row["order"].as_ints();
    std::vector<int64_t> order;
    for (const Example& example : got) order.push_back(std::get<int64_t>(example.at("idx")));
    if (is_shuffled) {  // TensorFlow's own order
      std::sort(want.begin(), want.end());
      std::sort(order.begin(), order.end());
    }
    EXPECT_EQ(order, want);
  }
}

TEST(SeqioCache, IsReadAsSeqioReadsIt) {
  int rows = 0;
  for (const Json& row : Json::read_lines(fixture() / "reads.jsonl")) {
    SCOPED_TRACE(row.path() + " " + row["task"].as_string());
    ASSERT_FALSE(row.has("error"));
    check_row(row);
    ++rows;
  }
  EXPECT_GT(rows, 0);
}

TEST(SeqioCache, RecordsAreWrittenBackByteForByte) {
  int records = 0;
  for (const auto& entry : fs::recursive_directory_iterator(fixture() / "cache")) {
    if (!contains(entry.path().filename().string(), ".tfrecord-")) continue;
    const std::string bytes = read_file(entry.path());
    std::string again;
    for (std::string_view rest = bytes; const auto record = next_tfrecord(rest, "f");) {
      Example example;
      ExampleParser({})(*record, example);
      append_tfrecord(again, serialize_tf_example(example));
      ++records;
    }
    EXPECT_EQ(again, bytes) << entry.path();
  }
  EXPECT_GT(records, 0);
}

using OurCache = testing::FileTest;

TEST_F(OurCache, HasSeqiosFilesInfoAndStats) {
  for (const char* name : {"oracle_tsv", "oracle_wide"}) {
    const fs::path want = fixture() / "cache" / name;
    const Task task = task_of(name);
    for (const std::string& split : task.splits()) {
      CacheOptions options{.output_cache_dir = (folder_ / "out").string()};
      options.min_shards = Json::read(cache_info_file(want, split))["num_shards"].as_int();
      if (!fs::exists(folder_ / "out" / name)) write_cache(task, options);
    }
    for (const auto& entry : fs::directory_iterator(want)) {
      const auto file = folder_ / "out" / name / entry.path().filename();
      ASSERT_TRUE(fs::exists(file)) << file;
      if (!contains(file.string(), ".tfrecord-")) {
        EXPECT_EQ(read_file(file), read_file(entry.path())) << file;
      }
    }
  }
}

}  // namespace
}  // namespace quintet::data
