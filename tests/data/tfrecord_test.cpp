#include "runtime/base/formats/tfrecord.h"

#include <zstd.h>

#include "data/examples/data_source.h"
#include "data/examples/random.h"
#include "data/examples/tf_example.h"
#include "data/sources/interleave.h"
#include "data/sources/record_files.h"
#include "data/sources/record_index.h"
#include "runtime/base/formats/json.h"
#include "tests/data/files.h"
#include "tests/data/rows.h"

namespace quintet::data {
namespace {

using testing::contains;
using testing::message_of;
using testing::rows_text;
using TfRecords = testing::FileTest;

std::vector<FeatureSpec> text_and_ids() { return {{"text", "string", {}}, {"ids", "int32", {-1}}}; }

std::string record_of(int n) {
  Example example;
  example.set("text", "number " + std::to_string(n));
  example.set("ids", Tokens{n, n + 1});
  return serialize_tf_example(example);
}

std::string file_of(int first, int count) {
  std::string bytes;
  for (int n = first; n < first + count; ++n) append_tfrecord(bytes, record_of(n));
  return bytes;
}

/// Numbers of the examples that can be read, in order.
std::vector<int64_t> numbers_in(const std::string& path, OnBadExample on_bad) {
  const TFExampleDataSource source({{"train", {path}}}, text_and_ids(), {.on_bad_example = on_bad});
  StreamPtr stream = read_stream(source.open("train"), {.epochs = 1});
  std::vector<int64_t> numbers;
  for (const Example& example : collect(*stream)) numbers.push_back(example.tokens("ids").at(0));
  return numbers;
}

TEST_F(TfRecords, FilesAreReadInSeqiosOrder) {
  write("a-0", file_of(0, 20));
  write("a-1", file_of(100, 3));
  const TFExampleDataSource source({{"train", {(folder_ / "a-*").string()}}}, text_and_ids());
  const auto reader = source.open("train");
  ASSERT_EQ(reader->size(), 23);
  Example example;
  const auto first_id = [&](int64_t i) {
    reader->read(i, example);
    return example.tokens("ids").at(0);
  };
  EXPECT_EQ(first_id(15), 15);
  EXPECT_EQ(first_id(16), 100);
  EXPECT_EQ(first_id(19), 16);
  EXPECT_TRUE(contains(reader->where(16), "a-1: record 0 (byte 0)"));
  EXPECT_EQ(source.open_shard("train", {1, 2})->size(), 3);  // by file
  EXPECT_EQ(source.open_shard("train", {2, 3})->size(), 7);  // by example: 2, 5, .., 20
}

TEST(Interleaving, IsThatOfAnObviousLoop) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    Random random(fold_in(key_from_seed(5), seed));
    std::vector<int64_t> sizes(static_cast<size_t>(random.below(12)));
    for (int64_t& size : sizes) size = random.below(4) == 0 ? 0 : random.below(40);
    constexpr size_t kCycle = 3;
    constexpr int64_t kBlock = 4;
    std::vector<std::pair<size_t, int64_t>> want;
    std::vector<std::optional<std::pair<size_t, int64_t>>> slots(kCycle);
    size_t next = 0;
    for (size_t idle = 0, slot = 0; idle < 2 * kCycle; slot = (slot + 1) % kCycle) {
      ++idle;
      if (!slots[slot] && next < sizes.size()) slots[slot].emplace(next++, 0);
      if (!slots[slot]) continue;
      idle = 0;
      auto& [file, at] = *slots[slot];
      int64_t given = 0;
      for (; given < kBlock && at < sizes[file]; ++given) want.emplace_back(file, at++);
      if (given < kBlock) slots[slot].reset();
    }
    const Interleave order(sizes, kCycle, kBlock);
    ASSERT_EQ(order.size(), static_cast<int64_t>(want.size()));
    for (size_t i = 0; i < want.size(); ++i) {
      const auto place = order.at(static_cast<int64_t>(i));
      ASSERT_EQ(std::pair(place.file, place.index), want[i]) << "seed " << seed << " at " << i;
    }
  }
}

// Row I1 of the fault table.
TEST_F(TfRecords, EveryFlippedByteIsNoticedAndCostsOneRecord) {
  const std::string good = file_of(0, 50);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    const std::string path = write("f", bad);
    const std::string message =
        message_of(ExitCode::kData, [&] { numbers_in(path, OnBadExample::fail); });
    ASSERT_TRUE(contains(message, path + ": record ")) << at;
    const auto left = numbers_in(path, {.most = 1});
    ASSERT_EQ(left.size(), 49u) << "byte " << at;
  }
}

TEST_F(TfRecords, EveryTruncationIsNoticed) {
  const std::string good = file_of(0, 5);
  const size_t frame = good.size() / 5;
  for (size_t size = 1; size < good.size(); ++size) {
    const std::string path = write("f", good.substr(0, size));
    if (size % frame == 0) continue;  // whole records: nothing tells that there were more
    ASSERT_TRUE(contains(message_of(ExitCode::kData, [&] { numbers_in(path, OnBadExample::fail); }),
                         "f: record " + std::to_string(size / frame)));
    ASSERT_EQ(numbers_in(path, {.most = 1}).size(), size / frame);
  }
}

TEST_F(TfRecords, NoMoreBadRecordsAreSkippedThanAllowed) {
  std::string bytes = file_of(0, 10);
  const size_t frame = bytes.size() / 10;
  for (size_t record : {2u, 5u, 7u}) bytes[record * frame + 30] ^= 1;
  const std::string path = write("f", bytes);
  EXPECT_EQ(numbers_in(path, {.most = 3}), (std::vector<int64_t>{0, 1, 3, 4, 6, 8, 9}));
  EXPECT_TRUE(
      contains(message_of(ExitCode::kData, [&] { numbers_in(path, {.most = 2}); }), "record 7"));
  // A record is counted once, however often it is met.
  const TFExampleDataSource source({{"train", {path}}}, text_and_ids(),
                                   {.on_bad_example = {.most = 3}});
  StreamPtr stream = read_stream(source.open("train"), {.epochs = 3});
  EXPECT_EQ(collect(*stream).size(), 21u);
}

TEST_F(TfRecords, AnIndexIsKeptAndForgottenWithTheFile) {
  ::setenv("QUINTET_INDEX_DIR", (folder_ / "index").c_str(), 1);
  const auto big = write("big", std::string(RecordIndex::kCachedFromBytes, 'x'));
  int passes = 0;
  const auto records = [&] {
    const RecordIndex index(InputFile(big), "test", [&](std::vector<int64_t>& starts) {
      ++passes;
      starts = {0, 10, passes};
    });
    return index.extent(2).begin;
  };
  EXPECT_EQ(records(), 1);
  EXPECT_EQ(records(), 1);
  EXPECT_EQ(passes, 1);
  const auto cached = *std::filesystem::directory_iterator(folder_ / "index");
  std::filesystem::resize_file(cached.path(), std::filesystem::file_size(cached.path()) - 1);
  EXPECT_EQ(records(), 2) << "a damaged index was used";
  std::ofstream(big, std::ios::app) << "more";
  EXPECT_EQ(records(), 3) << "the file has changed";
  ::unsetenv("QUINTET_INDEX_DIR");
}

TEST_F(TfRecords, CompressedFilesAreTheSame) {
  const std::string bytes = file_of(0, 40);
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 3));
  const auto plain = numbers_in(write("f", bytes), OnBadExample::fail);
  EXPECT_EQ(numbers_in(write("f.zst", packed), OnBadExample::fail), plain);
  EXPECT_EQ(numbers_in(write("g.zst", packed + packed), OnBadExample::fail).size(),
            2 * plain.size());
  EXPECT_EQ(numbers_in(write_gz("f.gz", bytes), OnBadExample::fail), plain);
  for (size_t size = 1; size < packed.size(); ++size) {
    const auto cut = write("cut.zst", packed.substr(0, size));
    ASSERT_TRUE(contains(message_of(ExitCode::kData, [&] { numbers_in(cut, OnBadExample::skip); }),
                         "cut.zst: damaged zstd file"));
  }
}

Example parsed(std::vector<FeatureSpec> features, const std::string& record) {
  Example example;
  ExampleParser(std::move(features))(record, example);
  return example;
}

TEST(TfExample, HoldsWhatWasWritten) {
  Example example;
  example.set("inputs", Tokens{-1, 0, 5, 2'000'000'000});
  example.set("text", std::string("h\xC3\xA9llo"));
  example.set("big", int64_t{1} << 60);
  example.set("score", 0.5);
  example.set("audio", std::vector<double>{1, 2, 3, 4});
  example.set("answers", std::vector<std::string>{"a", ""});
  example.set("none", Tokens{});
  const std::vector<FeatureSpec> all = {{"inputs", "int32", {-1}},  {"text", "string", {}},
                                        {"big", "int64", {}},       {"score", "float32", {}},
                                        {"audio", "float32", {-1}}, {"answers", "string", {-1}},
                                        {"none", "int32", {-1}}};
  Example back = parsed(all, serialize_tf_example(example));
  EXPECT_EQ(to_string(back), to_string(example));
  back.erase("big");
  const Example undeclared = parsed({}, serialize_tf_example(back));
  EXPECT_EQ(undeclared.text("text"), "h\xC3\xA9llo");
  EXPECT_EQ(undeclared.tokens("inputs"), example.tokens("inputs"));
}

TEST(TfExample, ErrorsNameTheFeature) {
  Example example;
  example.set("ids", Tokens{1, 2, 3});
  example.set("text", std::string("caf\xE9"));
  example.set("big", int64_t{1} << 40);
  const std::string record = serialize_tf_example(example);
  const auto error = [&](FeatureSpec spec) {
    return message_of(ExitCode::kData, [&] { parsed({std::move(spec)}, record); });
  };
  EXPECT_TRUE(contains(error({"targets", "int32", {2}}),
                       "feature 'targets' is missing; the example has ids, text, big"));
  EXPECT_TRUE(contains(error({"ids", "float32", {-1}}), "'ids' holds integers, expected floats"));
  EXPECT_TRUE(contains(error({"ids", "int32", {}}), "'ids' has 3 values, expected 1"));
  EXPECT_TRUE(contains(error({"ids", "int32", {2}}), "'ids' has 3 values, expected 2"));
  EXPECT_TRUE(contains(error({"text", "string", {}}), "byte 4 of the text (0xe9) is not UTF-8"));
  EXPECT_TRUE(contains(error({"big", "int32", {-1}}), "does not fit into 32 bits"));
  EXPECT_EQ(parsed({{"text", "bytes", {}}}, record).text("text"), "caf\xE9");
  EXPECT_EQ(parsed({{.name = "x", .fallback = Value(int64_t{7})}}, record).find("x")->index(), 2u);
  for (size_t size = 1; size < record.size(); ++size)
    message_of(ExitCode::kData, [&] {
      parsed({{"ids", "int32", {-1}}, {"text", "bytes", {}}, {"big", "int64", {}}},
             record.substr(0, size));
    });
  message_of(ExitCode::kUsage, [] { parsed({{"a", "int8", {}}}, ""); });
  message_of(ExitCode::kUsage, [] { parsed({{"a", "int32", {2, -1}}}, ""); });
}

TEST(TfExample, ShortFormOfAFeature) {
  const FeatureSpec spec = parse_feature_spec("audio", "float32[?,80]");
  EXPECT_EQ(spec.dtype, "float32");
  EXPECT_EQ(spec.shape, (std::vector<int64_t>{-1, 80}));
  EXPECT_TRUE(parse_feature_spec("text", "string").shape.empty());
  EXPECT_EQ(parse_feature_spec("ids", "int32[]").shape, (std::vector<int64_t>{-1}));
  message_of(ExitCode::kUsage, [] { parse_feature_spec("a", "int32[x]"); });
  message_of(ExitCode::kUsage, [] { parse_feature_spec("a", "int32[3"); });
}

}  // namespace
}  // namespace quintet::data
