// The order of reading, chunks, and what a position is made of.
#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <set>

#include "data/preprocessors/token_preprocessors.h"
#include "data/reading/contents.h"
#include "data/reading/file_fingerprints.h"
#include "data/reading/position_text.h"
#include "data/reading/work_chunks.h"
#include "tests/data/files.h"
#include "tests/data/rows.h"

namespace quintet::data {
namespace {

using testing::contains;
using testing::message_of;

/// Numbers below `size`, as one id each; in windows if asked.
class Numbers final : public Reader {
 public:
  explicit Numbers(std::optional<int64_t> size, int64_t window = 0, int64_t bad = -1)
      : size_(size), window_(window), bad_(bad) {}
  std::optional<int64_t> size() const override { return size_; }
  int64_t shuffle_window() const override { return window_; }
  std::string where(int64_t i) const override { return "number " + std::to_string(i); }
  void read(int64_t i, Example& out) const override {
    QT_CHECK_AS(ExitCode::kData, bad_ < 0 || i != bad_, "{}: bad", where(i));
    ++reads;
    out.set("targets", Tokens{static_cast<int32_t>(i)});
  }
  mutable std::atomic<int64_t> reads{0};

 private:
  std::optional<int64_t> size_;
  int64_t window_, bad_;
};

/// Joins ten, so that results show where chunks begin, and drops some.
StreamPtr join_ten(StreamPtr input) {
  ReduceConcatTokens join;
  join.feature_key = "targets";
  join.batch_size = 10;
  input = map_stream(std::move(input),
                     [](Example& example) { return example.tokens("targets")[0] % 7 != 0; });
  return join.apply(std::move(input), {});
}

std::vector<nlohmann::json> take(Stream& stream, int64_t count) {
  std::vector<nlohmann::json> all;
  Example example;
  for (int64_t i = 0; i < count && stream.next(example); ++i) {
    all.push_back(testing::json_of(example));
    all.back()["key"] = {example.key.a, example.key.b};
  }
  return all;
}

std::shared_ptr<const ReadOrder> order_of(std::shared_ptr<const Reader> reader,
                                          std::optional<int64_t> epochs = {}) {
  return std::make_shared<ReadOrder>(std::move(reader),
                                     ReadOptions{.shuffle = true, .seed = 3, .epochs = epochs});
}

TEST(ReadOrder, ShufflesWithinWindowsWhereRandomAccessIsDear) {
  for (const int64_t size : {1, 7, 100, 103}) {
    const ReadOrder order(std::make_shared<Numbers>(size, 10), {.shuffle = true, .seed = 1});
    std::vector<int64_t> seen;
    for (const int64_t epoch : {0, 1}) {
      std::vector<int64_t> now;
      for (int64_t i = 0; i < size; ++i) now.push_back(order.epoch(epoch).index(i));
      for (int64_t begin = 0; begin + 10 <= size; begin += 10) {
        std::set<int64_t> windows;
        for (int64_t i = begin; i < begin + 10; ++i)
          windows.insert(now[static_cast<size_t>(i)] / 10);
        EXPECT_EQ(windows.size(), 1u) << size << " " << begin;
      }
      EXPECT_TRUE(size < 50 || now != seen);
      seen = now;
      std::sort(now.begin(), now.end());
      for (int64_t i = 0; i < size; ++i) EXPECT_EQ(now[static_cast<size_t>(i)], i);
      EXPECT_TRUE(size < 50 || !std::is_sorted(seen.begin(), seen.end()));
    }
  }
}

TEST(Chunks, GiveTheSameStreamWhoeverMakesThem) {
  for (const auto size :
       {std::optional<int64_t>(3), std::optional<int64_t>(1000), std::optional<int64_t>()}) {
    const auto order = order_of(std::make_shared<Numbers>(size));
    const auto want = take(*chunk_stream(order, join_ten, {}), 300);
    ASSERT_EQ(want.size(), 300u);
    for (const int threads : {1, 2, 8}) {
      const auto runner = std::make_shared<ChunkThreads>(threads);
      EXPECT_EQ(take(*chunk_stream(order, join_ten, {.runner = runner}), 300), want) << threads;
    }
  }
}

TEST(Chunks, AnEndIsAnEnd) {
  const auto order = order_of(std::make_shared<Numbers>(1000), 2);
  const auto runner = std::make_shared<ChunkThreads>(3);
  const auto want = take(*chunk_stream(order, join_ten, {}), 1000);
  EXPECT_EQ(take(*chunk_stream(order, join_ten, {.runner = runner}), 1000), want);
  size_t ids = 0;
  for (const auto& row : want) ids += row["targets"].size();
  EXPECT_EQ(ids, 2u * (1000 - 143));
}

TEST(Chunks, GoOnFromAPositionWithoutReadingWhatWasBefore) {
  const auto numbers = std::make_shared<Numbers>(int64_t{1} << 40);
  const auto order = order_of(numbers);
  const auto stream = chunk_stream(order, join_ten, {});
  Example example;
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(stream->next(example));
  Position position;
  stream->save(position);
  EXPECT_EQ(position.size(), 2u);
  const auto want = take(*stream, 50);
  for (const bool threads : {false, true}) {
    const auto runner = threads ? std::make_shared<ChunkThreads>(2) : nullptr;
    const auto resumed = chunk_stream(order, join_ten, {.runner = runner});
    PositionReader reader(position);
    numbers->reads = 0;
    resumed->restore(reader);
    EXPECT_LE(numbers->reads, 5 * kChunkExamples);
    EXPECT_EQ(take(*resumed, 50), want);
  }
}

TEST(Chunks, AnErrorComesAfterTheExamplesBeforeIt) {
  const auto order = std::make_shared<ReadOrder>(std::make_shared<Numbers>(1000, 0, 300),
                                                 ReadOptions{.epochs = 1});
  const auto same = [](StreamPtr input) { return input; };
  for (const bool threads : {false, true}) {
    const auto runner = threads ? std::make_shared<ChunkThreads>(2) : nullptr;
    const auto stream = chunk_stream(order, same, {.runner = runner});
    EXPECT_EQ(take(*stream, 300).size(), 300u);
    for (int again = 0; again < 2; ++again)
      EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { take(*stream, 1); }), "number 300"));
  }
}

TEST(Chunks, ADataSetWithoutAUsableExampleIsAnError) {
  const auto drop = [](StreamPtr input) {
    return map_stream(std::move(input), [](Example&) { return false; });
  };
  const auto stream = chunk_stream(order_of(std::make_shared<Numbers>(5)), drop, {});
  EXPECT_TRUE(
      contains(message_of(ExitCode::kData, [&] { take(*stream, 1); }), "none of the 5 examples"));
}

TEST(PositionText, ReadsBack) {
  const Position far = {0, -1, 1, 63, 64, -64, -65, 300, INT64_MAX, INT64_MIN, 1'000'000'000'000};
  for (size_t n = 0; n <= far.size(); ++n) {
    const Position some(far.begin(), far.begin() + static_cast<int64_t>(n));
    EXPECT_EQ(position_from_text(position_text(some)), some);
  }
  EXPECT_EQ(position_text({3, -1, 300}), "BgHYBA==");
  for (const char* bad : {"A", "AA=A", "A===", "gA==", "****", "////////////////////"})
    message_of(ExitCode::kData, [&] { position_from_text(bad); });
}

using ContentsTest = testing::FileTest;

TEST_F(ContentsTest, FileFingerprintsSeeEveryByteOfFilesThatAreNotLarge) {
  const auto small = write("small", std::string(10'000, 'a')), large = write("large", "");
  constexpr int64_t kLarge = int64_t{65} << 20;
  std::filesystem::resize_file(large, kLarge);
  const auto change = [](const std::string& path, int64_t offset) {
    std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(offset) << '!';
  };
  const auto before = file_fingerprints({small, large});
  EXPECT_FALSE(before[0].sampled);
  EXPECT_TRUE(before[1].sampled);
  EXPECT_EQ(before[1].bytes, kLarge);
  for (const int64_t offset : {int64_t{0}, kLarge - 1}) {
    const uint32_t crc = file_fingerprints({small, large})[1].crc;
    change(large, offset);
    EXPECT_NE(file_fingerprints({small, large})[1].crc, crc) << offset;
  }
  change(small, 5'000);
  EXPECT_NE(file_fingerprints({small, large})[0].crc, before[0].crc);
  EXPECT_EQ(file_fingerprints({small})[0].crc, file_fingerprints({small, large})[0].crc);
  EXPECT_EQ(file_fingerprints({write("empty", "")})[0].crc, 0u);
  EXPECT_TRUE(
      contains(message_of(ExitCode::kData, [] { file_fingerprints({"/no/file"}); }), "/no/file"));
}

TEST_F(ContentsTest, FingerprintsNoticeNamesSizesAndBytes) {
  const std::string a = write("a", std::string(100'000, 'a')), b = write("b", "b");
  const auto before = fingerprint({a, b});
  EXPECT_EQ(fingerprint({a, b}), before);
  EXPECT_NE(fingerprint({b, a}), before);
  EXPECT_NE(fingerprint({a}), before);
  std::filesystem::create_directory(folder_ / "moved");
  std::filesystem::copy(a, folder_ / "moved" / "a");
  EXPECT_EQ(fingerprint({(folder_ / "moved" / "a").string(), b}), before);
  for (const size_t at : {0, 50'000, 99'999}) {
    std::string text(100'000, 'a');
    text[at] = 'x';
    write("a", text);
    const auto now = fingerprint({a, b});
    EXPECT_EQ(now.substr(0, 8), before.substr(0, 8));
    EXPECT_NE(now, before) << at;
  }
  write("b", "");
  EXPECT_NE(fingerprint({a, b}).substr(0, 8), before.substr(0, 8));
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [] { fingerprint({"/no/file"}); }), "/no/file"));
}

}  // namespace
}  // namespace quintet::data
