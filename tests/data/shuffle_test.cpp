// Shuffling after preprocessing: shuffle_buffer_size.
#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "data/batches/batches.h"
#include "data/reading/shuffle_buffer.h"
#include "data/reading/work_chunks.h"
#include "tests/data/gin_tasks.h"
#include "tests/harness/fixtures.h"

namespace quintet::data {
namespace {

using ::quintet::testing::fixture_root;
using testing::contains;
using testing::message_of;

constexpr int64_t kPieces = 6;

/// Documents of kPieces examples each, which count from 0 on; `reads` of documents are counted.
struct Documents final : Reader {
  explicit Documents(std::optional<int64_t> number) : count(number) {}
  std::optional<int64_t> size() const override { return count; }
  std::string where(int64_t i) const override { return "document " + std::to_string(i); }
  void read(int64_t i, Example& out) const override {
    ++reads;
    out.set("targets", Tokens{static_cast<int32_t>(i)});
  }
  std::optional<int64_t> count;
  mutable std::atomic<int64_t> reads{0};
};

StreamPtr pieces_of(StreamPtr input, int64_t pieces = kPieces) {
  return flat_map_stream(std::move(input), [pieces](Example&& in, std::vector<Example>& out) {
    for (int64_t i = 0; i < pieces; ++i) {
      const auto id = in.tokens("targets")[0] * static_cast<int32_t>(pieces);
      out.emplace_back().set("targets", Tokens{id + static_cast<int32_t>(i)});
    }
  });
}

StreamPtr pieces(const std::shared_ptr<const Reader>& documents, int64_t buffer,
                 std::optional<int64_t> epochs = 1, int threads = 0) {
  const auto order = std::make_shared<ReadOrder>(documents, ReadOptions{.epochs = epochs});
  return shuffle_stream(
      chunk_stream(order, [](StreamPtr input) { return pieces_of(std::move(input)); },
                   {.runner = threads > 0 ? std::make_shared<ChunkThreads>(threads) : nullptr}),
      buffer, key_from_seed(7));
}

std::vector<int64_t> take(Stream& stream, int64_t most = INT64_MAX) {
  std::vector<int64_t> ids;
  Example example;
  while (static_cast<int64_t>(ids.size()) < most && stream.next(example))
    ids.push_back(example.tokens("targets")[0]);
  return ids;
}

struct Spread {
  double mean_gap = 0;  // places between pieces that were neighbours
  double adjacent = 0;  // part of the places at which a piece of the same document follows
};
Spread spread_of(const std::vector<int64_t>& ids, int64_t pieces) {
  std::vector<int64_t> place(ids.size());
  for (size_t i = 0; i < ids.size(); ++i)
    place[static_cast<size_t>(ids[i])] = static_cast<int64_t>(i);
  Spread spread;
  int64_t pairs = 0, adjacent = 0;
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    adjacent += ids[i] / pieces == ids[i + 1] / pieces;
    if (static_cast<int64_t>(i) / pieces != static_cast<int64_t>(i + 1) / pieces) continue;
    spread.mean_gap += static_cast<double>(std::abs(place[i + 1] - place[i]));
    ++pairs;
  }
  spread.mean_gap /= static_cast<double>(pairs);
  spread.adjacent = static_cast<double>(adjacent) / static_cast<double>(ids.size() - 1);
  return spread;
}

TEST(ShuffleBuffer, SpreadsThePiecesOfADocumentAboutAsFarAsSeqio) {
  const auto file = fixture_root() / "semantics" / "shuffle.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  for (const Json& row : Json::read(file).items()) {
    const int64_t documents = row["documents"].as_int(), of_each = row["pieces"].as_int();
    std::vector<Example> examples(static_cast<size_t>(documents * of_each));
    for (size_t i = 0; i < examples.size(); ++i)
      examples[i].set("targets", Tokens{static_cast<int32_t>(i)});
    const auto stream = shuffle_stream(stream_of(std::move(examples)),
                                       row["shuffle_buffer_size"].as_int(), key_from_seed(1));
    const Spread ours = spread_of(take(*stream), of_each);
    EXPECT_GE(ours.mean_gap, 0.75 * row["mean_gap"].as_double()) << row.path();
    EXPECT_LE(ours.mean_gap, 1.05 * row["mean_gap"].as_double()) << row.path();
    EXPECT_LE(ours.adjacent, 1.35 * row["adjacent"].as_double()) << row.path();
  }
}

TEST(ShuffleBuffer, GivesEveryExampleOnceAnEpoch) {
  for (const int64_t documents : {0, 1, 2, 5, 20, 33, 100})
    for (const int64_t buffer : {1, 2, 12, 100, 1000})
      for (const int64_t epochs : {1, 3}) {
        auto ids = take(*pieces(std::make_shared<Documents>(documents), buffer, epochs));
        const bool sorted = std::is_sorted(ids.begin(), ids.end());
        EXPECT_TRUE(sorted || buffer > 1 || epochs > 1);
        EXPECT_TRUE(!sorted || buffer < 10 || documents < 5);
        std::sort(ids.begin(), ids.end());
        std::vector<int64_t> want;
        for (int64_t i = 0; i < documents * kPieces; ++i) want.insert(want.end(), epochs, i);
        EXPECT_EQ(ids, want) << documents << " " << buffer << " " << epochs;
      }
}

TEST(ShuffleBuffer, GoesOnFromAnyPositionWithoutReadingWhatWasBefore) {
  constexpr int64_t kBuffer = 60, kFar = 50'000, kPositions = 400, kSome = 100;
  const auto documents = std::make_shared<Documents>(int64_t{1} << 24);
  const auto whole = take(*pieces(documents, kBuffer, {}), kFar + kPositions + kSome);
  EXPECT_EQ(take(*pieces(documents, kBuffer, {}, 3), 2000),
            std::vector<int64_t>(whole.begin(), whole.begin() + 2000));
  const auto stream = pieces(documents, kBuffer, {});
  int64_t most = 0;
  Example passed_over;
  for (int64_t at = 0; at < kFar + kPositions; ++at, stream->next(passed_over)) {
    if (at >= kPositions && at < kFar) continue;
    Position position;
    stream->save(position);
    EXPECT_EQ(position.size(), 4u);
    const auto resumed = pieces(documents, kBuffer, {});
    PositionReader reader(position);
    documents->reads = 0;
    resumed->restore(reader);
    EXPECT_TRUE(reader.done());
    most = std::max<int64_t>(most, documents->reads * kPieces);
    EXPECT_EQ(take(*resumed, kSome),
              std::vector<int64_t>(whole.begin() + at, whole.begin() + at + kSome))
        << at;
  }
  EXPECT_LE(most, (kRoundOfBuffers + 1) * kBuffer + 2 * kChunkExamples * kPieces);
}

TEST(ShuffleBuffer, RefusesAPositionThatItDoesNotHave) {
  const auto documents = std::make_shared<Documents>(20);  // 120 pieces: the round ends there
  Position good;
  const auto stream = pieces(documents, 60);
  take(*stream, 100);
  stream->save(good);
  ASSERT_EQ(good.back(), 100);
  for (const int64_t draws :
       {int64_t{-1}, int64_t{120}, int64_t{121}, kRoundOfBuffers * 60, INT64_MAX}) {
    Position bad = good;
    bad.back() = draws;
    PositionReader reader(bad);
    EXPECT_TRUE(contains(
        message_of(ExitCode::kData, [&] { pieces(documents, 60)->restore(reader); }), "shuffling"))
        << draws;
  }
}

/// Words of lines, as ids of their first letters; the task that gin text makes of them.
class ShuffledTask : public testing::GinTasks {
 protected:
  ProviderPtr task_of(const std::string& bindings, const std::string& preprocessors) {
    std::string text;
    for (int line = 0; line < 50; ++line) {
      for (int i = 0; i < 4; ++i) text += static_cast<char>('0' + line);
      text += "\n";
    }
    const std::string file = write("t.txt", text);
    const TaskRegistry registry = tasks_of(R"(
import seqio
from t5.data import preprocessors
seqio.ByteVocabulary.extra_ids = 0
seqio.Feature.vocabulary = @seqio.ByteVocabulary()
seqio.Feature.add_eos = False
seqio.TextLineDataSource.split_to_filepattern = {'train': [')" +
                                           file + R"(']}
preprocessors.rekey.key_map = {'targets': 'text'}
preprocessors.split_tokens.feature_key = 'targets'
preprocessors.split_tokens.max_tokens_per_segment = 1
seqio.Task.name = 'letters'
seqio.Task.source = @seqio.TextLineDataSource()
seqio.Task.output_features = {'targets': @seqio.Feature()}
seqio.Task.preprocessors = [@preprocessors.rekey, @seqio.preprocessors.tokenize, )" +
                                           preprocessors + R"(]
seqio.TaskRegistry.tasks = [@seqio.Task()]
)" + bindings);
    return registry.get("letters");
  }
  /// The part of places at which a piece of the same line follows.
  static double adjacent(const Provider& task, bool shuffle = true) {
    const StreamPtr stream =
        task.stream({.shuffle = shuffle, .seed = 1, .epochs = 1, .trim_output_features = false});
    const auto ids = take(*stream);
    int64_t count = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) count += ids[i] == ids[i + 1];
    return static_cast<double>(count) / static_cast<double>(ids.size() - 1);
  }
  const std::string split_ = "@preprocessors.split_tokens";
};

TEST_F(ShuffledTask, MixesWhatPreprocessorsMakeOfOneExample) {
  EXPECT_LT(adjacent(*task_of("", split_)), 0.1);
  EXPECT_DOUBLE_EQ(adjacent(*task_of("seqio.Task.shuffle_buffer_size = 1", split_)), 150. / 199);
  EXPECT_DOUBLE_EQ(adjacent(*task_of("", split_), false), 150. / 199);
  const double four = adjacent(*task_of("seqio.Task.shuffle_buffer_size = 8", split_));
  EXPECT_GT(four, 0.1);
  EXPECT_LT(four, 0.6);
}

TEST_F(ShuffledTask, NoneForbidsShuffling) {
  const std::string none = "seqio.Task.shuffle_buffer_size = None";
  const auto task = task_of(none, split_);
  EXPECT_EQ(adjacent(*task, false), adjacent(*task_of("", split_), false));
  for (const std::string& steps : {split_, std::string()})
    EXPECT_TRUE(contains(message_of(ExitCode::kUsage, [&] { adjacent(*task_of(none, steps)); }),
                         "task 'letters': shuffling is forbidden"));
  for (const char* size : {"0", "-1"})
    EXPECT_TRUE(contains(
        message_of(
            ExitCode::kUsage,
            [&] { task_of(std::string("seqio.Task.shuffle_buffer_size = ") + size, split_); }),
        "shuffle_buffer_size"));
}

TEST_F(ShuffledTask, NoneIsAllowedWhereTheSourceShuffles) {
  const std::string bindings =
      "seqio.Task.shuffle_buffer_size = None\n"
      "seqio.Task.source = @seqio.FileDataSource()\n"
      "seqio.FileDataSource.read_file_fn = @tf.data.TextLineDataset\n"
      "seqio.FileDataSource.split_to_filepattern = {'train': '" +
      write("lines.txt", "one\ntwo\nthree\n") + "'}\n";
  EXPECT_TRUE(contains(message_of(ExitCode::kUsage, [&] { adjacent(*task_of(bindings, "")); }),
                       "shuffling is forbidden"));
  const auto task =
      task_of(bindings + "seqio.FileDataSource.performs_internal_shuffling = True\n", "");
  EXPECT_NE(task->stream({.shuffle = true, .seed = 1}), nullptr);
}

TEST_F(ShuffledTask, NeedsNoBufferWhereEveryExampleStaysOne) {
  const auto task = task_of("", "");
  const StreamPtr stream = task->stream({.shuffle = true, .seed = 1});
  Position position;
  stream->save(position);
  EXPECT_EQ(position.size(), 2u);
}

TEST_F(ShuffledTask, BatchesOfAMixtureGoOnWhereTheyWere) {
  DatasetConfig config;
  config.mixture_or_task_name = "mix";
  config.task_feature_lengths = {{"targets", 4}};
  config.batch_size = 4;
  config.shuffle = config.pack = true;
  config.seed = 1;
  const Mixture mixture("mix", {{task_of("", split_), 1.0}});
  const auto converter = make_feature_converter("LMFeatureConverter", {.pack = true});
  Batches first(mixture, config, converter);
  std::vector<HostArrays> all;
  std::vector<std::string> positions;
  for (int i = 0; i < 60; ++i) {
    positions.push_back(first.position());
    all.push_back(first.next()->features);
  }
  for (const size_t at : {0, 1, 17, 59}) {
    Batches resumed(mixture, config, converter, {.prefetch = 0});
    resumed.restore(positions[at]);
    const HostArrays features = resumed.next()->features;
    for (const auto& [name, array] : all[at]) EXPECT_EQ(features.at(name).bytes, array.bytes) << at;
  }
}

}  // namespace
}  // namespace quintet::data
