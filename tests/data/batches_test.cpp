#include "data/batches.h"

#include "data/sources/number_words.h"
#include "tests/data/files.h"

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
  Batches open(bool pack, BatchOptions options = {}) {
    return Batches(*registry_.get("number_words"), config_of(pack), converter_of(pack), options);
  }
  /// `count` lines "x<i>\ty<i>".
  ProviderPtr tsv_task(int count) {
    std::string text;
    for (int i = 0; i < count; ++i)
      text += "x" + std::to_string(i) + "\ty" + std::to_string(i) + "\n";
    const auto vocabulary = std::make_shared<ByteVocabulary>();
    return std::make_shared<Task>(Task::Config{
        .name = "tsv",
        .source = std::make_shared<TsvDataSource>(SplitToFiles{{"train", {write("t.tsv", text)}}}),
        .preprocessors = {std::make_shared<TokenizeBytes>()},
        .output_features = {{"inputs", {vocabulary}}, {"targets", {vocabulary}}}});
  }
  struct TokenizeBytes final : Preprocessor {
    StreamPtr apply(StreamPtr input, const Context&) const override {
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
  EXPECT_TRUE(contains(open_with([](auto& c) { c.use_cached = true; }), "use_cached"));
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

}  // namespace
}  // namespace quintet::data
