#include "data/batches/batches.h"

#include <atomic>
#include <set>

#include "data/service/chunk_exchange.h"
#include "data/tasks/number_words.h"
#include "runtime/base/formats/json.h"
#include "tests/data/files.h"
#include "tests/harness/fixtures.h"

namespace quintet::data {
namespace {

using testing::contains;
using testing::message_of;

DatasetConfig config_of(bool pack, int64_t batch_size = 4) {
  return {.mixture_or_task_name = "number_words",
          .task_feature_lengths = {{"inputs", 64}, {"targets", 64}},
          .split = "train",
          .batch_size = batch_size,
          .shuffle = true,
          .seed = 3,
          .pack = pack};
}

FeatureConverterPtr converter_of(bool pack) {
  return make_feature_converter("EncDecFeatureConverter", {.pack = pack});
}

class BatchesTest : public testing::FileTest {
 protected:
  BatchesTest() { register_builtin_tasks(registry_); }
  Batches open(bool pack, BatchOptions options = {}, int64_t batch_size = 4) {
    return Batches(*registry_.get("number_words"), config_of(pack, batch_size), converter_of(pack),
                   options);
  }
  /// `count` lines "x<i>\ty<i>".
  ProviderPtr tsv_task(int count) {
    std::string text;
    for (int i = 0; i < count; ++i)
      text += "x" + std::to_string(i) + "\ty" + std::to_string(i) + "\n";
    return tsv_file(write("t.tsv", text));
  }
  ProviderPtr tsv_file(const std::filesystem::path& file) {
    const auto vocabulary = std::make_shared<ByteVocabulary>();
    return std::make_shared<Task>(Task::Config{
        .name = "tsv",
        .source = std::make_shared<TsvDataSource>(SplitToFiles{{"train", {file.string()}}}),
        .preprocessors = {std::make_shared<TokenizeBytes>()},
        .output_features = {{"inputs", {vocabulary}}, {"targets", {vocabulary}}}});
  }
  struct TokenizeBytes final : Preprocessor {
    StreamPtr apply(StreamPtr input, const PreprocessContext&) const override {
      return map_stream(std::move(input), [](Example& example) {
        for (const char* key : {"inputs", "targets"})
          example.set(key, ByteVocabulary().encode(example.text(key)));
        return true;
      });
    }
  };
  TaskRegistry registry_;
};

bool equal(const HostArrays& a, const HostArrays& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, array] : a) {
    const auto other = b.find(name);
    if (other == b.end() || array.shape != other->second.shape ||
        array.bytes != other->second.bytes)
      return false;
  }
  return true;
}

TEST_F(BatchesTest, HaveTheModelsFeatures) {
  for (const bool pack : {false, true}) {
    Batches batches = open(pack);
    const auto batch = batches.next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->rows, 4);
    EXPECT_EQ(batch->features.size(), pack ? 8u : 4u);
    for (const auto& [name, length] : batches.model_feature_lengths()) {
      EXPECT_EQ(batch->features.at(name).shape, (std::vector<int64_t>{4, length})) << name;
      EXPECT_EQ(batch->features.at(name).dtype, DType::i32);
    }
  }
}

TEST_F(BatchesTest, AResumedRunSeesWhatTheFirstWouldHaveSeen) {
  for (const bool pack : {false, true})
    for (const int64_t prefetch : {0, 3}) {
      Batches first = open(pack, {.prefetch = prefetch});
      std::vector<Batch> all;
      std::vector<std::string> positions = {first.position()};
      for (int i = 0; i < 30; ++i) {
        all.push_back(*first.next());
        positions.push_back(first.position());
      }
      for (const size_t at : {0, 1, 7, 29}) {
        Batches resumed = open(pack, {.prefetch = 3 - prefetch});
        resumed.restore(positions[at]);
        EXPECT_EQ(resumed.position(), positions[at]);
        for (size_t i = at; i < std::min(all.size(), at + 3); ++i)
          EXPECT_TRUE(equal(resumed.next()->features, all[i].features)) << at << " " << i;
      }
      first.restore(positions[2]);  // back, while the thread is ahead
      EXPECT_TRUE(equal(first.next()->features, all[2].features));
    }
}

TEST_F(BatchesTest, DoNotDependOnTheBatchSizeOrTheSeedOfOthers) {
  const auto provider = registry_.get("number_words");
  Batches four(*provider, config_of(false, 4), converter_of(false));
  Batches one(*provider, config_of(false, 1), converter_of(false));
  const auto batch = four.next();
  const auto whole = batch->features.at("encoder_input_tokens").as<int32_t>();
  for (size_t row = 0; row < 4; ++row) {
    const auto single = one.next();
    const auto part = single->features.at("encoder_input_tokens").as<int32_t>();
    EXPECT_TRUE(
        std::equal(part.begin(), part.end(), whole.begin() + static_cast<int64_t>(row) * 64));
  }
  DatasetConfig other = config_of(false);
  other.seed = 4;
  Batches differently(*provider, other, converter_of(false));
  EXPECT_FALSE(equal(differently.next()->features, batch->features));
}

TEST_F(BatchesTest, DoNotDependOnThreadsOrDataShards) {
  for (const bool pack : {false, true}) {
    constexpr int64_t kHosts = 8;
    Batches whole = open(pack, {.prefetch = 0}, kHosts);
    std::vector<Batches> parts;
    for (int64_t shard = 0; shard < kHosts; ++shard)
      parts.push_back(open(pack,
                           {.prefetch = shard % 4,
                            .threads = static_cast<int>(1 + shard % 4),
                            .shard = {shard, kHosts}},
                           kHosts));
    for (int i = 0; i < 50; ++i) {
      const auto batch = whole.next();
      HostArrays joined;
      for (Batches& part : parts) {
        const auto rows = part.next();
        EXPECT_EQ(rows->rows, 1);
        for (const auto& [name, array] : rows->features) {
          HostArray& all =
              joined.try_emplace(name, HostArray(DType::i32, {0, array.shape[1]})).first->second;
          all.shape[0] += array.shape[0];
          all.bytes.insert(all.bytes.end(), array.bytes.begin(), array.bytes.end());
        }
      }
      ASSERT_TRUE(equal(joined, batch->features)) << i;
      for (Batches& part : parts) EXPECT_EQ(part.position(), whole.position());
    }
    const std::string position = whole.position();
    const auto next = whole.next();
    for (const int64_t hosts : {1, 2, 4, 8}) {  // a run that goes on on another number of them
      Batches last = open(pack, {.shard = {hosts - 1, hosts}}, kHosts);
      last.restore(position);
      const auto rows = last.next();
      for (const auto& [name, array] : next->features) {
        const auto& got = rows->features.at(name).bytes;
        EXPECT_EQ(got.size(), array.bytes.size() / static_cast<size_t>(hosts));
        EXPECT_TRUE(std::equal(got.rbegin(), got.rend(), array.bytes.rbegin())) << hosts << name;
      }
    }
  }
  EXPECT_TRUE(contains(message_of(ExitCode::kUsage,
                                  [&] {
                                    open(false, {.shard = {0, 3}});
                                  }),
                       "multiple of the 3"));
}

/// Rows of a batch, one array's bytes each.
std::vector<std::vector<std::byte>> rows_of(const Batch& batch) {
  const HostArray& array = batch.features.at("encoder_input_tokens");
  const auto bytes = static_cast<int64_t>(array.bytes.size()) / array.shape[0];
  std::vector<std::vector<std::byte>> rows;
  for (int64_t i = 0; i < array.shape[0]; ++i)
    rows.emplace_back(array.bytes.begin() + i * bytes, array.bytes.begin() + (i + 1) * bytes);
  return rows;
}

TEST_F(BatchesTest, AShardHasItsPartOfEveryMicrobatch) {
  Batches whole = open(true, {}, 12), first = open(true, {.shard = {0, 2, 3}}, 12),
          second = open(true, {.shard = {1, 2, 3}}, 12);
  for (int i = 0; i < 5; ++i) {
    const auto all = rows_of(*whole.next());
    const std::vector want_first{all[0], all[1], all[4], all[5], all[8], all[9]};
    const std::vector want_second{all[2], all[3], all[6], all[7], all[10], all[11]};
    EXPECT_EQ(rows_of(*first.next()), want_first);
    EXPECT_EQ(rows_of(*second.next()), want_second);
    EXPECT_EQ(first.position(), whole.position());
  }
  EXPECT_TRUE(contains(message_of(ExitCode::kUsage,
                                  [&] {
                                    open(true, {.shard = {0, 2, 4}}, 12);
                                  }),
                       "2 data shards times 4 microbatches"));
}

/// Fewer files, and fewer examples, than shards: row I4 of the fault table.
TEST_F(BatchesTest, ADataSetSmallerThanTheShardsIsSpreadOverThem) {
  for (const int examples : {1, 2, 3}) {
    const auto task = tsv_task(examples);
    std::vector<int64_t> rows;
    std::set<std::vector<std::byte>> seen;
    for (int64_t shard = 0; shard < 8; ++shard) {
      Batches training(*task, config_of(false, 8), converter_of(false), {.shard = {shard, 8}});
      const auto batch = training.next();
      EXPECT_EQ(batch->rows, 1);
      seen.insert(batch->features.at("encoder_input_tokens").bytes);
      Batches once(*task, config_of(false, 8), converter_of(false),
                   {.epochs = 1, .shard = {shard, 8}});
      rows.push_back(once.next()->rows);
      EXPECT_FALSE(once.next());
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(examples));
    std::vector<int64_t> want(8, 0);
    std::fill_n(want.begin(), examples, 1);
    EXPECT_EQ(rows, want);
  }
}

/// Numbers of the examples of tsv_task in each of the next batches.
std::vector<std::vector<int>> numbers_of(Batches& batches, int count) {
  std::vector<std::vector<int>> numbers;
  for (int i = 0; i < count; ++i) {
    const Batch batch = *batches.next();
    const HostArray& inputs = batch.features.at("encoder_input_tokens");
    std::vector<int>& of_batch = numbers.emplace_back();
    for (int64_t row = 0; row < inputs.shape[0]; ++row) {
      const auto tokens = inputs.as<int32_t>().subspan(static_cast<size_t>(row * inputs.shape[1]),
                                                       static_cast<size_t>(inputs.shape[1]));
      const std::string text = ByteVocabulary().decode({tokens.begin(), tokens.end()});
      of_batch.push_back(std::stoi(text.substr(1)));
    }
  }
  return numbers;
}

TEST_F(BatchesTest, VirtualShardsArePackedEachForItself) {
  const ProviderPtr task = tsv_task(24);
  DatasetConfig config = config_of(false);
  config.mixture_or_task_name = "tsv";
  config.virtual_shards = 3;
  Batches batches(*task, config, converter_of(false));
  const auto epoch = numbers_of(batches, 6);
  std::set<int> seen;
  for (size_t n = 0; n < epoch.size(); ++n)
    for (const int number : epoch[n]) {
      EXPECT_EQ(number % 3, static_cast<int>(n) % 3);
      seen.insert(number);
    }
  EXPECT_EQ(seen.size(), 24U);  // each once in an epoch

  // From a position on, and from a jump.
  Batches again(*task, config, converter_of(false));
  numbers_of(again, 4);
  Batches resumed(*task, config, converter_of(false)),
      jumped(*task, config, converter_of(false), {.index_file = write("index", "")});
  resumed.restore(again.position());
  jumped.seek(4);
  const std::vector<std::vector<int>> rest(epoch.begin() + 4, epoch.end());
  EXPECT_EQ(numbers_of(resumed, 2), rest);
  EXPECT_EQ(numbers_of(jumped, 2), rest);
  EXPECT_EQ(resumed.position(), batches.position());

  // Bad batches are left out of the part that they are of.
  config.skip_batches = {{1, 2}};
  Batches skipping(*task, config, converter_of(false));
  EXPECT_EQ(numbers_of(skipping, 2), (std::vector<std::vector<int>>{epoch[0], epoch[3]}));
}

TEST_F(BatchesTest, WhatVirtualShardsCannotDoIsRefused) {
  DatasetConfig config = config_of(true);
  config.virtual_shards = 4;
  const auto message = [&](const BatchOptions& options) {
    return message_of(ExitCode::kUsage, [&] {
      Batches(*registry_.get("number_words"), config, converter_of(true), options);
    });
  };
  EXPECT_TRUE(contains(message({.epochs = 1}), "an evaluation"));
  EXPECT_TRUE(contains(message({.batch_shard = {0, 3}}), "3 data ranks do not divide"));
  config.skip_batches = {{1, 1}};
  EXPECT_TRUE(contains(message({.batch_shard = {0, 2}}), "start one data rank"));
  config.skip_batches = {};
  Batches in_four(*registry_.get("number_words"), config, converter_of(true));
  const std::string position = in_four.position();
  config.virtual_shards = 2;
  Batches in_two(*registry_.get("number_words"), config, converter_of(true));
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { in_two.restore(position); }),
                       "in 4 virtual shards"));
  config.virtual_shards = 0;
  EXPECT_TRUE(contains(message({}), "virtual_shards is 0"));
}

TEST_F(BatchesTest, EveryRankGetsAChunkOnceAndAHostOnce) {
  const std::vector<std::string> hosts = {"a", "a", "b", "b", "b", "c"};
  for (int owner = 0; owner < 6; ++owner) {
    std::map<int, int> got;                  // by rank
    std::map<std::string, int> from_others;  // by host
    const auto send = [&](int self) {
      const ChunkRoutes routes(hosts, self);
      for (const int to : routes.receivers(owner)) {
        ++got[to];
        from_others[hosts[static_cast<size_t>(to)]] +=
            hosts[static_cast<size_t>(to)] != hosts[static_cast<size_t>(self)];
      }
    };
    send(owner);
    for (const auto& [rank, count] : std::map(got)) send(rank);
    for (int rank = 0; rank < 6; ++rank)
      EXPECT_EQ(got[rank], rank == owner ? 0 : 1) << owner << " to " << rank;
    for (const auto& [host, count] : from_others)
      EXPECT_EQ(count, host == hosts[static_cast<size_t>(owner)] ? 0 : 1)
          << owner << " to " << host;
  }
}

TEST_F(BatchesTest, BadBatchesAreLeftOut) {
  EXPECT_EQ(parse_batch_ranges(" 3-5, 9 "),
            (std::vector<std::pair<int64_t, int64_t>>{{3, 5}, {9, 9}}));
  EXPECT_TRUE(parse_batch_ranges("").empty());
  for (const char* bad : {"a", "3-", "5-3", "1,,2", "-1", "1 2", "99999999999999999999"})
    EXPECT_TRUE(contains(message_of(ExitCode::kUsage, [&] { parse_batch_ranges(bad); }), bad));
  Batches all = open(true);
  DatasetConfig config = config_of(true);
  config.skip_batches = {{0, 0}, {3, 5}};
  const auto provider = registry_.get("number_words");
  Batches some(*provider, config, converter_of(true));
  std::string before_three;
  for (int i = 0; i < 10; ++i) {
    const auto batch = all.next();
    if (i == 0 || (i >= 3 && i <= 5)) continue;
    EXPECT_TRUE(equal(some.next()->features, batch->features)) << i;
    if (i < 3) before_three = all.position();
  }
  EXPECT_EQ(some.position(), all.position());  // batches that are left out count
  some.restore(before_three);                  // of a run that left none out
  all.restore(before_three);
  for (int i = 3; i < 6; ++i) all.next();
  EXPECT_TRUE(equal(some.next()->features, all.next()->features));
}

TEST_F(BatchesTest, AJumpTakesOnePassAtMost) {
  const BatchOptions options{.prefetch = 0, .index_file = folder_ / "index.jsonl"};
  for (const bool pack : {false, true}) {
    Batches all = open(pack);
    for (int i = 0; i < 600; ++i) all.next();
    const std::string there = all.position();
    Batches jumped = open(pack, options);
    jumped.seek(600);
    EXPECT_EQ(jumped.position(), there);
    EXPECT_TRUE(equal(jumped.next()->features, all.next()->features));
    jumped.seek(0);
    EXPECT_TRUE(equal(jumped.next()->features, open(pack).next()->features));
  }
  std::ifstream file(options.index_file);
  int lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  EXPECT_EQ(lines, 4);  // batches 256 and 512 of both
  std::ofstream(options.index_file, std::ios::app) << "{\"data\": \"cut of";

  const auto counted = std::make_shared<std::atomic<int64_t>>(0);
  const auto vocabulary = std::make_shared<ByteVocabulary>();
  const Task task({.name = "number_words",
                   .source = std::make_shared<FunctionDataSource>(
                       "n",
                       std::map<std::string, FunctionDataSource::Split>{
                           {"train",
                            {100'000,
                             [counted](int64_t i, Example& out) {
                               ++*counted;
                               out.set("inputs", std::to_string(i));
                               out.set("targets", std::to_string(i));
                             }}}}),
                   .preprocessors = {std::make_shared<TokenizeBytes>()},
                   .output_features = {{"inputs", {vocabulary}}, {"targets", {vocabulary}}}});
  std::string first;
  for (const int64_t most :
       {3'200, 700}) {  // examples read: all before the batch, or those from 512 on
    *counted = 0;
    Batches batches(task, config_of(false), converter_of(false), options);
    batches.seek(600);
    EXPECT_LT(*counted, most);
    if (first.empty()) first = batches.position();
    EXPECT_EQ(batches.position(), first);
  }
  const Task once(
      {.name = "number_words",
       .source = std::make_shared<FunctionDataSource>(
           "n", std::map<std::string, FunctionDataSource::Split>{{"train",
                                                                  {10,
                                                                   [](int64_t, Example& out) {
                                                                     out.set("inputs", "a");
                                                                     out.set("targets", "b");
                                                                   }}}}),
       .preprocessors = {std::make_shared<TokenizeBytes>()},
       .output_features = {{"inputs", {vocabulary}}, {"targets", {vocabulary}}}});
  Batches short_one(once, config_of(false), converter_of(false), {.epochs = 1});
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { short_one.seek(4); }), "ends at batch 3"));
}

TEST_F(BatchesTest, APositionIsShortAndOnlySaysWhatIsLeft) {
  std::vector<Mixture::Part> parts;
  const auto task = tsv_task(1000);
  for (int i = 0; i < 100; ++i) {
    Mixture::Part part{std::make_shared<Mixture>("part" + std::to_string(i),
                                                 std::vector<Mixture::Part>{{task, 1.0}}),
                       1.0 + i};
    parts.push_back(part);
  }
  const Mixture mixture("hundred", parts);
  Batches batches(mixture, config_of(true, 64), converter_of(true));
  for (int i = 0; i < 100; ++i) batches.next();
  EXPECT_LT(batches.position().size(), 1024u) << batches.position();
}

/// Row I3 of the fault table.
TEST_F(BatchesTest, ChangedFilesAreNoticed) {
  std::string position;
  {
    Batches before(*tsv_task(10), config_of(false), converter_of(false));
    before.next();
    position = before.position();
  }
  const auto task = tsv_task(10);
  DatasetConfig strict = config_of(false);
  strict.strict_data = true;
  Batches(*task, strict, converter_of(false)).restore(position);  // the same files, written again
  {
    std::ofstream file(folder_ / "t.tsv", std::ios::in | std::ios::out);
    file << "z";  // in place of an x
  }
  const auto changed = tsv_file(folder_ / "t.tsv");
  Batches warned(*changed, config_of(false), converter_of(false));
  ::testing::internal::CaptureStderr();
  warned.restore(position);
  EXPECT_TRUE(contains(::testing::internal::GetCapturedStderr(), "t.tsv, ..) have changed"));
  EXPECT_TRUE(warned.next());
  Batches refused(*changed, strict, converter_of(false));
  EXPECT_TRUE(
      contains(message_of(ExitCode::kData, [&] { refused.restore(position); }), "--strict_data"));
}

TEST_F(BatchesTest, TheLastBatchOfAnEvaluationIsPadded) {
  const auto task = tsv_task(10);
  DatasetConfig config = config_of(false);
  config.shuffle = false;
  for (const int64_t prefetch : {0, 2}) {
    Batches batches(*task, config, converter_of(false), {.epochs = 1, .prefetch = prefetch});
    std::vector<int64_t> rows;
    while (const auto batch = batches.next()) {
      rows.push_back(batch->rows);
      const auto ids = batch->features.at("encoder_input_tokens").as<int32_t>();
      for (int64_t row = 0; row < 4; ++row)
        EXPECT_EQ(ids[static_cast<size_t>(row * 64)] != 0, row < batch->rows);
    }
    EXPECT_EQ(rows, (std::vector<int64_t>{4, 4, 2}));
    EXPECT_FALSE(batches.next());
  }
}

TEST_F(BatchesTest, ADataSetSmallerThanABatchFillsItInTrainingAndPadsItInEvaluation) {
  const auto task = tsv_task(3);
  Batches training(*task, config_of(false, 8), converter_of(false));
  EXPECT_EQ(training.next()->rows, 8);
  Batches evaluation(*task, config_of(false, 8), converter_of(false), {.epochs = 1});
  EXPECT_EQ(evaluation.next()->rows, 3);
  EXPECT_FALSE(evaluation.next());
}

TEST_F(BatchesTest, ExamplesInMemoryNeedNoLengths) {
  const auto task = tsv_task(12);
  DatasetConfig config = config_of(false, 5);
  config.task_feature_lengths.clear();
  auto examples = evaluation_examples(*task, config);
  ASSERT_EQ(examples.size(), 12u);
  Batches batches(std::move(examples), config, converter_of(false));
  EXPECT_EQ(*find_length(batches.model_feature_lengths(), "encoder_input_tokens"), 3);  // "x10"
  std::vector<int64_t> rows;
  while (const auto batch = batches.next()) rows.push_back(batch->rows);
  EXPECT_EQ(rows, (std::vector<int64_t>{5, 5, 2}));
}

TEST_F(BatchesTest, WrongArgumentsAreErrors) {
  const auto provider = registry_.get("number_words");
  const auto open_with = [&](auto change) {
    return message_of(ExitCode::kUsage, [&] {
      DatasetConfig config = config_of(false);
      change(config);
      Batches batches(*provider, config, converter_of(false));
    });
  };
  EXPECT_TRUE(contains(open_with([](auto& c) { c.batch_size = 0; }), "batch_size is 0"));
  EXPECT_TRUE(contains(open_with([](auto& c) { c.split = "dev"; }), "'dev'"));
  EXPECT_TRUE(
      contains(open_with([](auto& c) { c.task_feature_lengths = {}; }), "task_feature_lengths"));
  EXPECT_TRUE(contains(open_with([](auto& c) {
                         c.task_feature_lengths = {{"inputs", 4}, {"targets", 0}};
                       }),
                       "is 0"));
  message_of(ExitCode::kUsage, [&] {
    evaluation_examples(*provider, config_of(false));  // train has no end
  });
}

TEST_F(BatchesTest, APositionOfAnotherRunIsRefused) {
  Batches batches = open(false);
  const std::string position = batches.position();
  Batches packed = open(true);
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { packed.restore(position); }), "padded"));
  message_of(ExitCode::kData, [&] { batches.restore("{}"); });
  message_of(ExitCode::kData, [&] { batches.restore("not JSON"); });
  Batches ten(*tsv_task(10), config_of(false), converter_of(false));
  const std::string of_ten = ten.position();
  Batches eleven(*tsv_task(11), config_of(false), converter_of(false));
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { eleven.restore(of_ten); }), "holds 11"));
}

TEST_F(BatchesTest, AnErrorOfTheThreadArrivesInNextAndStopsNothing) {
  const auto vocabulary = std::make_shared<ByteVocabulary>();
  const Task task({.name = "bad",
                   .source = std::make_shared<TsvDataSource>(
                       SplitToFiles{{"train", {write("bad.tsv", "a\tb\nc\td\nbad\n")}}}),
                   .preprocessors = {std::make_shared<TokenizeBytes>()},
                   .output_features = {{"inputs", {vocabulary}}, {"targets", {vocabulary}}}});
  DatasetConfig config = config_of(false, 2);
  config.shuffle = false;
  Batches batches(task, config, converter_of(false));
  EXPECT_TRUE(batches.next());
  for (int again = 0; again < 2; ++again)
    EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { batches.next(); }), "bad.tsv:3"));
}

TEST_F(BatchesTest, StoppingEarlyDoesNotHang) {
  for (int i = 0; i < 20; ++i) {
    Batches batches = open(i % 2 == 0, {.prefetch = 1 + i % 3});
    if (i % 4 != 0) batches.next();
  }
}

TEST_F(BatchesTest, SmallSetsFillWholeBatchesAsT5xsTrainingEvaluation) {
  const auto file = ::quintet::testing::fixture_root() / "semantics" / "train_eval.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  for (const Json& row : Json::read(file).items()) {
    const auto ids = row["ids"].as_ints();
    const int64_t length = row["length"].as_int(), batch_size = row["batch_size"].as_int();
    const auto task = std::make_shared<Task>(Task::Config{
        .name = "few",
        .source =
            std::make_shared<FunctionDataSource>("few",
                                                 std::map<std::string, FunctionDataSource::Split>{
                                                     {"validation",
                                                      {std::ssize(ids),
                                                       [&](int64_t i, Example& out) {
                                                         out.set("targets",
                                                                 Tokens{static_cast<int32_t>(
                                                                     ids[static_cast<size_t>(i)])});
                                                       }}}}),
        .preprocessors = {},
        .output_features = {{"targets", {std::make_shared<PassThroughVocabulary>(99, 1)}}}});
    DatasetConfig config = config_of(row["pack"].as_bool(), batch_size);
    config.task_feature_lengths = {{"targets", length}};
    config.split = "validation";
    config.shuffle = false;
    for (const int64_t shards : {1, 2}) {
      std::vector<Batches> parts;
      for (int64_t i = 0; i < shards; ++i)
        parts.emplace_back(*task, config,
                           make_feature_converter("LMFeatureConverter", {.pack = config.pack}),
                           BatchOptions{.epochs = row["eval_steps"].as_int() * batch_size,
                                        .repeat_rows = true,
                                        .prefetch = 0,
                                        .shard = {i, shards}});
      for (const Json& want : row["batches"].items()) {
        std::vector<int64_t> got, expected;
        for (Batches& part : parts) {
          const auto batch = part.next();
          ASSERT_TRUE(batch);
          for (const int32_t id : batch->features.at("decoder_target_tokens").as<int32_t>())
            got.push_back(id);
        }
        for (const Json& tokens : want.items())
          for (const int64_t id : tokens.as_ints()) expected.push_back(id);
        EXPECT_EQ(got, expected) << want.path() << " of " << shards;
      }
    }
  }
}

}  // namespace
}  // namespace quintet::data
