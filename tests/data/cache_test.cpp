#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "data/batches/batches.h"
#include "data/cache/cache_writer.h"
#include "data/converters/feature_converter.h"
#include "data/preprocessors/text_preprocessors.h"
#include "data/preprocessors/token_preprocessors.h"
#include "data/tasks/cache_folder.h"
#include "runtime/base/formats/json.h"
#include "tests/data/files.h"
#include "tests/data/rows.h"
#include "tests/harness/fixtures.h"

namespace quintet::data {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::message_of;

/// A task over lines "inputs\ttargets", cached after tokenizing, as the fixtures' tasks are.
Task tsv_task(const std::string& name, std::vector<std::string> files, int32_t extra_ids = 20,
              bool required = false) {
  const auto vocabulary = std::make_shared<ByteVocabulary>(extra_ids);
  auto point = std::make_shared<CacheDatasetPlaceholder>();
  point->required = required;
  return Task(
      {.name = name,
       .source = std::make_shared<TsvDataSource>(SplitToFiles{{"train", std::move(files)}}),
       .preprocessors = {std::make_shared<Tokenize>(), point, std::make_shared<AppendEos>()},
       .output_features = {{"inputs", {vocabulary}}, {"targets", {vocabulary}}}});
}

std::vector<std::string> read_all(const Task& task, StreamOptions options) {
  options.epochs = 1;
  std::vector<std::string> examples;
  StreamPtr stream = task.stream(options);
  for (const Example& example : collect(*stream)) examples.push_back(to_string(example));
  return examples;
}

/// Names and bytes of all files in a folder.
std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    files[entry.path().filename().string()] = read_file(entry.path());
  return files;
}

class Caches : public testing::FileTest {
 protected:
  void SetUp() override {
    FileTest::SetUp();
    std::string text;
    for (int i = 0; i < 500; ++i) text += fmt::format("in {}\tout {}\n", i, i * i);
    lines_ = {write("lines-0.tsv", text), write("lines-1.tsv", "last\tline\n")};
  }
  CacheOptions options(const std::string& name, int threads = 1) const {
    return {.output_cache_dir = (folder_ / name).string(), .min_shards = 3, .threads = threads};
  }
  StreamOptions cached(const std::string& name) const {
    return {.use_cached = true, .cache_dirs = {(folder_ / name).string()}};
  }
  std::vector<std::string> lines_;
};

TEST_F(Caches, HaveTheSameExamplesInEitherFormat) {
  const Task task = tsv_task("task", lines_);
  write_cache(task, options("tfrecord"));
  for (const int64_t group_size : {0, 1}) {
    const std::string name = fmt::format("of-{}", group_size);
    CacheOptions arrays = options(name, 2);
    arrays.format = CacheFormat::array_record;
    arrays.group_size = group_size;
    EXPECT_EQ(write_cache(task, arrays), 501);
    EXPECT_TRUE(fs::exists(folder_ / name / "task/train.array_record-00002-of-00003"));
    EXPECT_FALSE(fs::exists(folder_ / name / "task/train.tfrecord-00002-of-00003"));
    EXPECT_EQ(read_all(task, cached(name)), read_all(task, cached("tfrecord")));
  }
}

/// Each word of a line, but for "drop".
struct Words final : Preprocessor {
  StreamPtr apply(StreamPtr input, const PreprocessContext&) const override {
    return flat_map_stream(std::move(input), [](Example&& in, std::vector<Example>& out) {
      std::istringstream words(in.text("text"));
      for (std::string word; words >> word;)
        if (word != "drop") out.emplace_back().set("targets", word);
    });
  }
};

TEST_F(Caches, HaveSeqiosProvenance) {
  const Json recorded = Json::read(::quintet::testing::fixture_root() / "seqio/provenance.json");
  for (const auto& [name, lines] : recorded["files"].members())
    write(name, fmt::format("{}\n", fmt::join(lines.as_strings(), "\n")));
  const Task task(
      {.name = "mine",
       .source = std::make_shared<TextLineDataSource>(
           SplitToFiles{{"train", {(folder_ / "*.txt").string()}}}),
       .preprocessors = {std::make_shared<Words>(), std::make_shared<CacheDatasetPlaceholder>()},
       .output_features = {{"targets", {std::make_shared<ByteVocabulary>()}}}});
  for (const auto& [seed, examples] : recorded["examples"].members()) {
    CacheOptions with = options("seed " + seed);
    with.add_provenance = true;
    with.base_seed = seed == "None" ? 0 : std::stoi(seed);
    write_cache(task, with);
    const TFExampleDataSource records(
        {{"train", {(folder_ / ("seed " + seed) / "mine/train.tfrecord-*").string()}}});
    std::multiset<std::string> got, want;
    for (Example& example : collect(*read_stream(records.open("train"), {.epochs = 1}))) {
      const fs::path shard = example.text("provenance/source_shard");
      EXPECT_EQ(shard.parent_path(), folder_);
      nlohmann::json json = testing::json_of(example);
      json["provenance/source_shard"] = shard.filename().string();
      for (auto& value : json)  // of a parser that is told no types, lists
        if (value.is_array()) value = value.at(0);
      got.insert(json.dump());
    }
    for (const Json& example : examples.items()) want.insert(nlohmann::json(example.raw()).dump());
    EXPECT_EQ(got, want);
  }
}

TEST_F(Caches, MaySayWhereExamplesAreFrom) {
  const Task task = tsv_task("t", lines_);
  CacheOptions with = options("with");
  with.add_provenance = true;
  with.base_seed = 42;
  EXPECT_EQ(write_cache(task, with), 501);
  CacheOptions parallel = options("parallel", 3);
  parallel.add_provenance = true;
  parallel.base_seed = 42;
  write_cache(task, parallel);
  EXPECT_EQ(contents(folder_ / "with/t"), contents(folder_ / "parallel/t"));
  const TFExampleDataSource records({{"train", {(folder_ / "with/t/train.tfrecord-*").string()}}},
                                    {{"inputs_pretokenized", "string", {}},
                                     {"provenance/task", "string", {}},
                                     {"provenance/source_shard", "string", {}},
                                     {"provenance/source_shard_index", "int64", {}},
                                     {"provenance/index_within_shard", "int64", {}},
                                     {"provenance/preprocessors_seed", "int64", {}}});
  StreamPtr stream = read_stream(records.open("train"), {.epochs = 1});
  std::set<std::pair<int64_t, int64_t>> places;
  for (const Example& example : collect(*stream)) {
    const int64_t shard = example.integer("provenance/source_shard_index"),
                  index = example.integer("provenance/index_within_shard");
    EXPECT_EQ(example.text("provenance/task"), "t");
    EXPECT_EQ(example.text("provenance/source_shard"), lines_[static_cast<size_t>(shard)]);
    EXPECT_EQ(example.text("inputs_pretokenized"),
              shard == 1 ? "last" : fmt::format("in {}", index));
    EXPECT_EQ(example.integer("provenance/preprocessors_seed"), 42);
    places.emplace(shard, index);
  }
  EXPECT_EQ(places.size(), 501u);
  // They are no features of the task: info does not list them.
  EXPECT_FALSE(contains(read_file(folder_ / "with/t/info.train.json"), "provenance"));
  write_cache(task, options("without"));
  auto want = read_all(task, cached("without")), got = read_all(task, cached("with"));
  std::sort(want.begin(), want.end()), std::sort(got.begin(), got.end());
  EXPECT_EQ(got, want);
}

TEST_F(Caches, HoldEveryExampleOnceInAnotherOrder) {
  const Task task = tsv_task("a:b", lines_);
  EXPECT_EQ(write_cache(task, options("c")), 501);
  const fs::path folder = folder_ / "c/a/b";
  EXPECT_EQ(read_file(folder / "COMPLETED"), "tfrecord");
  EXPECT_EQ(Json::read(folder / "info.train.json")["num_shards"].as_int(), 3);
  EXPECT_FALSE(fs::exists(folder_ / "c/a/b.incomplete"));
  auto direct = read_all(task, {}), from_cache = read_all(task, cached("c"));
  EXPECT_NE(direct, from_cache);
  // Names of features come in the order of the file's json.
  const auto sorted_features = [](const Task& of, StreamOptions how) {
    how.epochs = 1;
    StreamPtr stream = of.stream(how);
    auto json = testing::collect_json(*stream);
    std::sort(json.begin(), json.end());
    return json;
  };
  EXPECT_EQ(sorted_features(task, {}), sorted_features(task, cached("c")));
}

TEST_F(Caches, AreTheSameForAnyThreadsMemoryAndRanks) {
  const Task task = tsv_task("t", lines_);
  write_cache(task, options("one"));
  const auto want = contents(folder_ / "one/t");
  EXPECT_EQ(want.size(), 3u + 4u);
  write_cache(task, options("many", 3));
  EXPECT_EQ(contents(folder_ / "many/t"), want);
  CacheOptions small = options("small");
  small.memory_bytes = 4096;  // many runs, many ranges of keys
  write_cache(task, small);
  EXPECT_EQ(contents(folder_ / "small/t"), want);
  CacheOptions other = options("other");
  other.base_seed = 1;
  write_cache(task, other);
  EXPECT_NE(contents(folder_ / "other/t"), want);
}

TEST_F(Caches, AreReadByMixturesBatchesAndAfterASecondCachingUnchanged) {
  const Task task = tsv_task("t", lines_);
  write_cache(task, options("c"));
  message_of(ExitCode::kData, [&] { write_cache(task, options("c")); });
  const auto before = contents(folder_ / "c/t");
  CacheOptions reseeded = options("c");
  reseeded.base_seed = 5;
  write_cache(task, reseeded, /*overwrite=*/true);
  EXPECT_NE(contents(folder_ / "c/t"), before);
  const DatasetConfig config{.mixture_or_task_name = "t",
                             .task_feature_lengths = {{"inputs", 16}, {"targets", 16}},
                             .batch_size = 8,
                             .use_cached = true,
                             .cache_dirs = {(folder_ / "c").string()}};
  Batches batches(task, config, make_feature_converter("EncDecFeatureConverter", {}),
                  {.epochs = 1});
  int64_t rows = 0;
  while (const auto batch = batches.next()) rows += batch->rows;
  EXPECT_EQ(rows, 501);
}

TEST_F(Caches, OfOtherTasksOrVocabulariesAreRefused) {
  write_cache(tsv_task("t", lines_), options("c"));
  const auto error = [&](const Task& task) {
    return message_of(ExitCode::kData, [&] { read_all(task, cached("c")); });
  };
  EXPECT_TRUE(contains(error(tsv_task("t", lines_, 100)), "was cached with vocabulary"));
  fs::rename(folder_ / "c/t", folder_ / "c/u");
  EXPECT_TRUE(contains(error(tsv_task("u", lines_)), "the cache is of task 't', expected 'u'"));
  EXPECT_TRUE(contains(error(tsv_task("t", lines_)), "--seqio_additional_cache_dirs"));
  // seqio's caches do not say what they are of; ids do.
  fs::remove(folder_ / "c/u/quintet.json");
  EXPECT_EQ(read_all(tsv_task("u", lines_), cached("c")).size(), 501u);
  const auto tiny = std::make_shared<PassThroughVocabulary>(50);
  const Task other({.name = "u",
                    .source = std::make_shared<TsvDataSource>(SplitToFiles{{"train", lines_}}),
                    .preprocessors = {std::make_shared<CacheDatasetPlaceholder>()},
                    .output_features = {{"inputs", {tiny}}}});
  EXPECT_TRUE(contains(error(other), "the vocabulary has ids 0 to 49"));
  message_of(ExitCode::kUsage, [&] { tsv_task("r", lines_, 20, true).stream({}); });
}

TEST_F(Caches, DamageIsNoticed) {
  const Task task = tsv_task("t", lines_);
  write_cache(task, options("c"));
  const fs::path folder = folder_ / "c/t", record = folder / "train.tfrecord-00001-of-00003";
  const std::string good = read_file(record);
  const auto error = [&] {
    return message_of(ExitCode::kData, [&] { read_all(task, cached("c")); });
  };
  std::string bad = good;
  bad[100] = static_cast<char>(bad[100] ^ 4);
  std::ofstream(record, std::ios::binary) << bad;
  EXPECT_TRUE(contains(error(), record.string() + ": record 0"));
  uint64_t length = 0;
  std::memcpy(&length, good.data(), sizeof length);
  std::ofstream(record, std::ios::binary) << good.substr(length + 16);
  EXPECT_TRUE(contains(error(), "holds 500 examples, its stats say 501"));
  fs::remove(record);
  EXPECT_TRUE(contains(error(), record.string() + ": is missing"));
  std::ofstream(folder / "info.train.json") << "{";
  EXPECT_TRUE(contains(error(), "info.train.json"));
}

TEST_F(Caches, NothingIsLeftOfAFailureAndARestartKeepsWhatIsDone) {
  std::string text;
  for (int i = 0; i < 40'000; ++i) text += fmt::format("{}\t{}\n", i, i);
  const auto big = write("big.tsv", text);
  write_cache(tsv_task("t", {big}), options("whole"));
  const auto broken = write("big.tsv", text + "ragged\n");
  EXPECT_TRUE(contains(
      message_of(ExitCode::kData, [&] { write_cache(tsv_task("t", {broken}), options("c")); }),
      "big.tsv:40001: 1 tab-separated columns"));
  EXPECT_FALSE(fs::exists(folder_ / "c/t"));
  // The chunks before the bad line are done; those of other data are not taken for them.
  const fs::path chunk = folder_ / "c/t.incomplete/spill.train/chunk-00000000.json";
  ASSERT_TRUE(fs::exists(chunk));
  const auto mended = write("big.tsv", text);
  write_cache(tsv_task("t", {mended}), options("c"));
  EXPECT_EQ(contents(folder_ / "c/t"), contents(folder_ / "whole/t"));
}

TEST_F(Caches, EmptyOnesAndEndlessOnesAreRefused) {
  message_of(ExitCode::kUsage, [&] {
    write_cache(Task({.name = "t",
                      .source = std::make_shared<TsvDataSource>(SplitToFiles{{"train", lines_}}),
                      .preprocessors = {},
                      .output_features = {{"inputs", {std::make_shared<ByteVocabulary>()}}}}),
                options("c"));
  });
  EXPECT_FALSE(fs::exists(folder_ / "c"));
}

}  // namespace
}  // namespace quintet::data
