// A directory that TFDS itself prepared (tests/oracles/gen_tfds.py), and what TFDS reads from it.
#include <cstring>
#include <nlohmann/json.hpp>

#include "data/examples/data_source.h"
#include "data/sources/array_record/array_record_file.h"
#include "data/sources/tfds_splits.h"
#include "runtime/base/files/read_file.h"
#include "runtime/base/formats/json.h"
#include "tests/data/files.h"
#include "tests/data/gin_tasks.h"
#include "tests/data/rows.h"

namespace quintet::data {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::message_of;

const fs::path kFolder = fs::path(QUINTET_SOURCE_DIR) / "tests/data/tfds";

TfdsDataSource whole(const std::string& split) {
  return TfdsDataSource("tiny_questions", kFolder.string(), {{"train", split}});
}

TEST(Tfds, SplitsAreReadInItsOrder) {
  int rows = 0;
  for (const Json& row : Json::read(kFolder / "reads.json")["reads"].items()) {
    SCOPED_TRACE(row["split"].as_string());
    StreamPtr stream = read_stream(whole(row["split"].as_string()).open("train"), {.epochs = 1});
    std::vector<int64_t> ids;
    for (const Example& example : collect(*stream))
      ids.push_back(std::get<int64_t>(example.at("id")));
    EXPECT_EQ(ids, row["ids"].as_ints());
    ++rows;
  }
  EXPECT_GT(rows, 5);
}

using TfdsFiles = testing::FileTest;

TEST_F(TfdsFiles, OfArrayRecordsHoldTheSame) {
  const fs::path from = kFolder / "tiny_questions/1.2.0", to = folder_ / "tiny_questions/1.2.0";
  fs::create_directories(to);
  for (const auto& entry : fs::directory_iterator(from)) {
    std::string name = entry.path().filename().string();
    const size_t format = name.find(".tfrecord-");
    if (format == std::string::npos) {
      fs::copy(entry.path(), to);
      continue;
    }
    const RecordFilePtr records = open_record_file(entry.path().string(), {});
    int64_t i = 0;
    std::string buffer;
    write_array_record(to / name.replace(format, 10, ".array_record-"), 1,
                       [&](std::string& record) {
                         if (i == records->size()) return false;
                         record = records->read(i++, buffer);
                         return true;
                       });
  }
  std::string info = read_file(to / "dataset_info.json");
  const std::string was = "\"fileFormat\": \"tfrecord\"";
  ASSERT_NE(info.find(was), std::string::npos);
  std::ofstream(to / "dataset_info.json")
      << info.replace(info.find(was), was.size(), "\"fileFormat\": \"array_record\"");
  const auto texts = [](const fs::path& folder) {
    StreamPtr stream =
        read_stream(TfdsDataSource("tiny_questions", folder.string()).open("train"), {.epochs = 1});
    std::vector<std::string> all;
    for (const Example& example : collect(*stream)) all.push_back(to_string(example));
    return all;
  };
  EXPECT_EQ(texts(folder_), texts(kFolder));
  EXPECT_FALSE(texts(folder_).empty());
}

TEST(Tfds, FeaturesAreThoseOfItsJson) {
  const TfdsDataSource source("tiny_questions:1.*.*", kFolder.string());
  EXPECT_EQ(source.splits(), (std::vector<std::string>{"train", "validation"}));
  EXPECT_EQ(source.num_shards("train"), 5);
  StreamPtr stream = read_stream(source.open("train"), {.epochs = 1});
  for (const Json& want : Json::read(kFolder / "reads.json")["examples"].items()) {
    Example got;
    ASSERT_TRUE(stream->next(got));
    EXPECT_EQ(got.text("question"), want["question"].as_string());
    EXPECT_EQ(got.text("pair/de"), want["pair"]["de"].as_string());
    EXPECT_EQ(std::get<int64_t>(got.at("label")), want["label"].as_int());
    EXPECT_EQ(std::get<int64_t>(got.at("flag")), int64_t{want["flag"].as_bool()});
    EXPECT_EQ(std::get<double>(got.at("weight")), want["weight"].as_double());
    EXPECT_EQ(std::get<std::vector<double>>(got.at("scores")), want["scores"].as_doubles());
    EXPECT_EQ(std::get<std::vector<std::string>>(got.at("answers/text")),
              want["answers"]["text"].as_strings());
    const auto& array = std::get<NdArray<int32_t>>(got.at("grid"));
    EXPECT_EQ(array.shape, (std::vector<int64_t>{2, 3}));
    for (size_t i = 0; i < array.values.size(); ++i)
      EXPECT_EQ(array.values[i], want["grid"][i / 3][i % 3].as_int());
    const auto starts = want["answers"]["start"].as_ints();
    EXPECT_EQ(got.tokens("answers/start"), Tokens(starts.begin(), starts.end()));
  }
}

TEST(Tfds, ShardsAreFilesWhileThereAreEnough) {
  const TfdsDataSource source("tiny_questions", kFolder.string());
  EXPECT_EQ(source.open_shard("train", {0, 5})->size(), 21);
  EXPECT_EQ(source.open_shard("train", {1, 5})->size(), 20);
  EXPECT_EQ(source.open_shard("train", {0, 6})->size(), 18);  // 103 examples, every sixth
}

TEST(Tfds, SlicesAreParsedAsTfdsDoes) {
  const std::vector<std::pair<std::string, int64_t>> sizes = {{"train", 103}, {"test", 7}};
  const auto parsed = [&](const char* text) { return parse_tfds_split(text, sizes); };
  EXPECT_EQ(parsed("train[:50%] + test"),
            (std::vector<TfdsSlice>{{"train", 0, 52}, {"test", 0, 7}}));
  EXPECT_EQ(parsed("train[-3:]"), (std::vector<TfdsSlice>{{"train", 100, 103}}));
  EXPECT_EQ(parsed("test[5:500]"), (std::vector<TfdsSlice>{{"test", 5, 7}}));
  EXPECT_EQ(parsed("test[4:2]"), (std::vector<TfdsSlice>{{"test", 4, 4}}));
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { parsed("dev"); }),
                       "unknown split 'dev'; the data set has train, test"));
  for (const char* bad : {"train[", "train[5]", "train[a:]", "train[:200%]", "train[:5"})
    message_of(ExitCode::kUsage, [&] { parsed(bad); });
}

using TfdsDamage = testing::FileTest;

TEST_F(TfdsDamage, IsNamed) {
  const auto at = (folder_ / "tiny_questions").string();
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { TfdsDataSource("x", at).splits(); }),
                       "no prepared TFDS data set 'x'"));
  fs::copy(kFolder / "tiny_questions", at, fs::copy_options::recursive);
  const fs::path record = fs::path(at) / "1.2.0/tiny_questions-train.tfrecord-00003-of-00005";
  fs::resize_file(record, fs::file_size(record) - 1);
  const TfdsDataSource source("tiny_questions", folder_.string());
  EXPECT_TRUE(
      contains(message_of(ExitCode::kData, [&] { source.open("train"); }), record.string()));
  fs::remove(record);
  EXPECT_TRUE(
      contains(message_of(ExitCode::kData, [&] { source.open("train"); }), record.string()));
  EXPECT_EQ(source.open("validation")->size(), 7);
}

TEST_F(TfdsDamage, OfANumberOrAnEncodingInItsJsonIsNamed) {
  const auto at = folder_ / "tiny_questions";
  fs::copy(kFolder / "tiny_questions", at, fs::copy_options::recursive);
  const TfdsDataSource source("tiny_questions", folder_.string());
  struct Damage {
    const char *file, *field, *good, *bad, *found;
  };
  // The field is the path in the file as Json names it.
  for (const Damage& damage : std::initializer_list<Damage>{
           {"dataset_info.json", "shardLengths[0]", "\"21\"", "\"abc\"", "'abc'"},
           {"dataset_info.json", "shardLengths[0]", "\"21\"", "\"-21\"", "-21"},
           {"dataset_info.json", "shardLengths[0]", "\"21\"", "\"9223372036854775807\"", "922337"},
           {"features.json", "sequence.length", "\"-1\"", "\"abc\"", "'abc'"},
           {"features.json", "dimensions", "\"2\"", "\"2x\"", "'2x'"},
           {"features.json", "encoding", "\"none\"", "\"jone\"", "'jone'"}}) {
    SCOPED_TRACE(damage.bad);
    const fs::path file = at / "1.2.0" / damage.file;
    const std::string good = read_file(file);
    std::string text = good;
    const size_t place = text.find(damage.good);
    ASSERT_NE(place, std::string::npos);
    std::ofstream(file) << text.replace(place, std::strlen(damage.good), damage.bad);
    const std::string message = message_of(ExitCode::kData, [&] { source.open("train"); });
    for (const char* part : {damage.file, damage.field, damage.found})
      EXPECT_TRUE(contains(message, part));
    std::ofstream(file) << good;
  }
}

class TfdsInGin : public testing::GinTasks {
 protected:
  ProviderPtr task(const std::string& text) {
    tasks_.emplace(tasks_of(
        "import seqio\nseqio.Feature.vocabulary = @seqio.ByteVocabulary()\nseqio.Task.name = 't'\n"
        "seqio.Task.source = @seqio.TfdsDataSource()\n"
        "seqio.Task.output_features = {'question': @seqio.Feature()}\n"
        "seqio.Task.preprocessors = [@seqio.preprocessors.tokenize]\n"
        "seqio.TaskRegistry.tasks = [@seqio.Task()]\n"
        "few/seqio.TfdsSplit.dataset = 'tiny_questions'\n"
        "few/seqio.TfdsSplit.split = 'train[:3]'\n"
        "own/seqio.TfdsSplit.dataset = 'tiny_questions:1.2.0'\n"
        "own/seqio.TfdsSplit.split = 'validation'\nown/seqio.TfdsSplit.data_dir = '" +
        kFolder.string() + "'\n" + text));
    return tasks_->get("t");
  }
  std::optional<TaskRegistry> tasks_;
};

TEST_F(TfdsInGin, SplitsMayBeOfOtherDataSets) {
  const std::string splits =
      "seqio.TfdsDataSource.splits = {'dev': @few/seqio.TfdsSplit(), 'test': "
      "@own/seqio.TfdsSplit()}\n";
  const std::string folder = "seqio.TfdsDataSource.tfds_data_dir = '" + kFolder.string() + "'\n";
  const ProviderPtr both = task(splits + folder);
  EXPECT_EQ(both->splits(), (std::vector<std::string>{"dev", "test"}));
  for (const auto& [split, slice] :
       {std::pair("dev", "train[:3]"), std::pair("test", "validation")}) {
    const auto got = collect(*both->stream({.split = split, .epochs = 1}));
    const auto want = collect(*read_stream(whole(slice).open("train"), {.epochs = 1}));
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(got[i].text("question_pretokenized"), want[i].text("question"));
  }
  std::string said = message_of(ExitCode::kUsage, [&] {
    task(splits + folder + "seqio.TfdsDataSource.tfds_name = 'tiny_questions'");
  });
  EXPECT_TRUE(contains(said, "tfds_name must be None where splits are TfdsSplits")) << said;
  EXPECT_TRUE(contains(said, "test.gin:")) << said;
  said = message_of(ExitCode::kUsage, [&] {
    task(folder + "seqio.TfdsDataSource.splits = {'a': @own/seqio.TfdsSplit(), 'b': 'train'}");
  });
  EXPECT_TRUE(contains(said, "splits[b]: expected @seqio.TfdsSplit()")) << said;
}

/// A value as gen_tfds.py has them: flat, bytes in hexadecimal.
nlohmann::json flat(const Value& value) {
  nlohmann::json shape = nlohmann::json::array(), values = nlohmann::json::array();
  const auto add = [&](const auto& item) {
    if constexpr (std::is_same_v<std::decay_t<decltype(item)>, std::string>) {
      std::string hex;
      for (const char c : item) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
      values.push_back(hex);
    } else {
      values.push_back(item);
    }
  };
  std::visit(
      [&](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (requires { v.shape; }) {
          shape = v.shape;
          for (const auto& item : v.values) add(item);
        } else if constexpr (std::is_same_v<T, std::string> || std::is_arithmetic_v<T>) {
          add(v);
        } else {
          shape.push_back(v.size());
          for (const auto& item : v) add(item);
        }
      },
      value);
  return {{"shape", shape}, {"values", values}};
}

class TfdsDecoding : public testing::GinTasks {
 protected:
  std::vector<Example> read(const std::string& text) {
    const TaskRegistry tasks = tasks_of(
        "import seqio\nimport tensorflow_datasets as tfds\nseqio.Task.name = 't'\n"
        "seqio.Feature.vocabulary = @seqio.ByteVocabulary()\n"
        "seqio.Task.output_features = {'text': @seqio.Feature()}\nseqio.Task.source = "
        "@seqio.TfdsDataSource()\n"
        "seqio.Task.preprocessors = []\nseqio.TaskRegistry.tasks = [@seqio.Task()]\n"
        "seqio.TfdsDataSource.tfds_name = 'tiny_media'\n"
        "seqio.TfdsDataSource.tfds_data_dir = '" +
        kFolder.string() + "'\n" + text);
    return collect(*tasks.get("t")->tasks().front()->raw_stream({.split = "train", .epochs = 1}));
  }
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

TEST_F(TfdsDecoding, GivesWhatTfdsGives) {
  size_t given = 0, failed = 0;
  for (const Json& row : Json::read(kFolder / "decoders.json").items()) {
    const std::string decoders =
        replaced(row["decoders"].as_string(), "SKIP", "@tfds.decode.SkipDecoding()");
    std::string text = "seqio.TfdsDataSource.decoders = " + decoders + "\n";
    if (!row["features"].is_null())
      text =
          "seqio.TfdsDataSource.decoders = @tfds.decode.PartialDecoding()\n"
          "tfds.decode.PartialDecoding.features = " +
          row["features"].as_string() + "\ntfds.decode.PartialDecoding.decoders = " + decoders +
          "\n";
    SCOPED_TRACE(text);
    if (row.has("error")) {
      const std::string said = message_of(ExitCode::kUsage, [&] { read(text); });
      EXPECT_TRUE(contains(said, "test.gin:")) << said;
      ++failed;
      continue;
    }
    const std::vector<Example> got = read(text);
    const auto want = row["examples"].items();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      nlohmann::json features;
      for (const auto& [name, value] : got[i].items()) features[name] = flat(value);
      EXPECT_EQ(features, nlohmann::json(want[i].raw()));
    }
    ++given;
  }
  EXPECT_GT(given, 15u);
  EXPECT_GT(failed, 8u);
}

TEST_F(TfdsDecoding, OfWhatIsNotReadIsRefusedByName) {
  const std::string partial =
      "seqio.TfdsDataSource.decoders = @tfds.decode.PartialDecoding()\n"
      "tfds.decode.PartialDecoding.features = ";
  for (const auto& [text, want] : std::map<std::string, std::string>{
           {partial + "['zipped']", "PartialDecoding.features: feature 'zipped' of "},
           {partial + "{'video': True}", "features[video]: feature 'video' of "},
           {"seqio.TfdsDataSource.decoders = {'inner': {'z': @tfds.decode.SkipDecoding()}}",
            "decoders[inner][z]: "},
           {"seqio.TfdsDataSource.decoders = @tfds.decode.SkipDecoding()", "the data set of "},
           {"seqio.TfdsDataSource.decoders = {'id': 7}", "@tfds.decode.SkipDecoding(), or a"}}) {
    const std::string said = message_of(ExitCode::kUsage, [&, text = text] { read(text); });
    EXPECT_TRUE(contains(said, want)) << said;
    EXPECT_TRUE(contains(said, "test.gin:")) << said;
  }
}

}  // namespace
}  // namespace quintet::data
