// Tasks written in gin, mixtures, and the registry.
#include "data/tasks/task.h"

#include <algorithm>
#include <set>

#include "data/show/show.h"
#include "data/tokenizer/tokenizer_trainer.h"
#include "tests/data/gin_tasks.h"
#include "tests/data/rows.h"

namespace quintet::data {
namespace {

using testing::contains;
using testing::message_of;

class GinTasks : public testing::GinTasks {};

TEST_F(GinTasks, EverySourceHasItsSeqioName) {
  const std::string lines = write("a.txt", "one\ntwo\n");
  const std::string tfds = std::string(QUINTET_SOURCE_DIR) + "/tests/data/tfds";
  const std::string fixture = tfds + "/tiny_questions/1.2.0/tiny_questions-validation.tfrecord-*";
  const auto tasks = tasks_of(R"(
seqio.Feature.vocabulary = @seqio.ByteVocabulary()
seqio.Task.output_features = {'targets': @seqio.Feature()}
file/seqio.FileDataSource.read_file_fn = @tf.data.TextLineDataset
file/seqio.FileDataSource.split_to_filepattern = {'train': ')" +
                              lines + R"('}
file/seqio.Task.name = 'file'
file/seqio.Task.source = @file/seqio.FileDataSource()
records/seqio.FileDataSource.read_file_fn = @tf.data.TFRecordDataset
records/seqio.FileDataSource.split_to_filepattern = {'train': ')" +
                              fixture + R"('}
records/seqio.Task.name = 'records'
records/seqio.Task.source = @records/seqio.FileDataSource()
numbers/seqio.FunctionDataSource.dataset_fn = @quintet.data.NumberWordsDataSource
numbers/seqio.FunctionDataSource.splits = ['validation']
numbers/seqio.Task.name = 'numbers'
numbers/seqio.Task.source = @numbers/seqio.FunctionDataSource()
id/tf.io.FixedLenFeature.shape = []
id/tf.io.FixedLenFeature.dtype = 'int64'
none/tf.io.FixedLenFeature.shape = []
none/tf.io.FixedLenFeature.dtype = 'string'
none/tf.io.FixedLenFeature.default_value = 'nothing'
tfexample/seqio.TFExampleDataSource.split_to_filepattern = {'train': ')" +
                              fixture + R"('}
tfexample/seqio.TFExampleDataSource.feature_description = {
    'question': 'string', 'id': @id/tf.io.FixedLenFeature(), 'more': @none/tf.io.FixedLenFeature()}
tfexample/seqio.Task.name = 'tfexample'
tfexample/seqio.Task.source = @tfexample/seqio.TFExampleDataSource()
seqio.TfdsDataSource.tfds_name = 'tiny_questions'
seqio.TfdsDataSource.tfds_data_dir = ')" +
                              tfds + R"('
seqio.TfdsDataSource.splits = {'train': 'validation[:3]', 'rest': 'validation[3:]'}
tfds/seqio.Task.name = 'tfds'
tfds/seqio.Task.source = @seqio.TfdsDataSource()
seqio.TaskRegistry.tasks = [@file/seqio.Task(), @records/seqio.Task(), @numbers/seqio.Task(),
                            @tfexample/seqio.Task(), @tfds/seqio.Task()]
)");
  const auto examples = [&](const char* name, const char* split = "train") {
    const auto* task = tasks.get(name)->tasks().at(0);
    StreamPtr stream = task->raw_stream({.split = split, .epochs = 1});
    return collect(*stream);
  };
  EXPECT_EQ(examples("file").at(1).text("text"), "two");
  EXPECT_EQ(examples("records").size(), 7u);
  EXPECT_EQ(tasks.get("numbers")->splits(), std::vector<std::string>{"validation"});
  EXPECT_FALSE(examples("numbers", "validation").empty());
  const auto parsed = examples("tfexample");
  ASSERT_EQ(parsed.size(), 7u);
  EXPECT_EQ(parsed[0].text("more"), "nothing");
  EXPECT_EQ(parsed[0].text("question"), "Wie viel ist 1006?");
  EXPECT_EQ(examples("tfds").size(), 3u);
  EXPECT_EQ(examples("tfds", "rest").size(), 4u);
}

TEST_F(GinTasks, FilesAreReadInTheOrderThatIsAskedFor) {
  for (const char* name : {"a", "b", "c"}) {
    std::string lines;
    for (int i = 0; i < 5; ++i) lines += fmt::format("{}{}\n", name, i);
    write(fmt::format("{}.txt", name), lines);
  }
  const auto read = [&](const std::string& bindings) {
    const auto tasks = tasks_of(R"(
seqio.Feature.vocabulary = @seqio.ByteVocabulary()
seqio.Task.output_features = {'targets': @seqio.Feature()}
seqio.Task.name = 'lines'
seqio.Task.source = @seqio.TextLineDataSource()
seqio.TextLineDataSource.split_to_filepattern = {'train': ')" +
                                folder_.string() + R"(/*.txt'}
seqio.TaskRegistry.tasks = [@seqio.Task()]
)" + bindings);
    StreamPtr stream =
        tasks.get("lines")->tasks().at(0)->raw_stream({.split = "train", .epochs = 1});
    std::string all;
    for (const Example& example : collect(*stream)) all += example.text("text");
    return all;
  };
  EXPECT_EQ(read("seqio.TextLineDataSource.block_length = 2"), "a0a1b0b1c0c1a2a3b2b3c2c3a4b4c4");
  EXPECT_EQ(read("seqio.TextLineDataSource.cycle_length = 1"), "a0a1a2a3a4b0b1b2b3b4c0c1c2c3c4");
  EXPECT_EQ(
      read("seqio.TextLineDataSource.cycle_length = 2\nseqio.TextLineDataSource.block_length = 1"),
      "a0b0a1b1a2b2a3b3a4b4c0c1c2c3c4");
  EXPECT_TRUE(contains(
      message_of(ExitCode::kUsage, [&] { read("seqio.TextLineDataSource.cycle_length = 0"); }),
      "expected 1 or more, found 0"));
}

/// Span corruption over text files, a task written in gin, on bytes.
TEST_F(GinTasks, PretrainWithSpanCorruptionOnTextFiles) {
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += "line " + std::to_string(i) + " of a small corpus of text\n";
  const std::string file = write_gz("c4-0.txt.gz", text);
  const auto tasks = tasks_of(R"(
import seqio
from t5.data import preprocessors
VOCABULARY = @seqio.ByteVocabulary()
seqio.ByteVocabulary.extra_ids = 100
seqio.Feature:
  vocabulary = %VOCABULARY
  add_eos = True
c4_text/seqio.TextLineDataSource.split_to_filepattern = {'train': ')" +
                              file + R"('}
to_targets/preprocessors.rekey.key_map = {'inputs': None, 'targets': 'text'}
preprocessors.span_corruption.noise_density = 0.15
c4_span/seqio.Task:
  name = 'c4_v220_span_corruption'
  source = @c4_text/seqio.TextLineDataSource()
  preprocessors = [
      @to_targets/preprocessors.rekey, @seqio.preprocessors.tokenize, @seqio.CacheDatasetPlaceholder(),
      @preprocessors.span_corruption, @seqio.preprocessors.append_eos_after_trim]
  output_features = {'inputs': @seqio.Feature(), 'targets': @seqio.Feature()}
  metric_fns = []
seqio.TaskRegistry.tasks = [@c4_span/seqio.Task()]
)");
  const auto task = tasks.get("c4_v220_span_corruption");
  const Lengths lengths = {{"inputs", 64}, {"targets", 32}};
  StreamPtr stream =
      task->stream({.split = "train", .sequence_length = lengths, .shuffle = true, .epochs = 1});
  const auto examples = collect(*stream);
  ASSERT_GT(examples.size(), 100u);
  int64_t full = 0;
  for (const Example& example : examples) {
    EXPECT_LE(example.tokens("inputs").size(), 64u);
    EXPECT_LE(example.tokens("targets").size(), 32u);
    EXPECT_EQ(example.tokens("inputs").back(), 1);
    EXPECT_EQ(example.tokens("targets").front(), 358);
    full += example.tokens("inputs").size() == 64;
  }
  EXPECT_GE(full, static_cast<int64_t>(examples.size()) - 3);  // but for the ends of three groups
}

TEST_F(GinTasks, FineTuneOnATsvAndMixWithABuiltInTask) {
  const std::string file = write("t.tsv", "one\t1\ntwo\t2\n");
  const auto tasks = tasks_of(R"(
import seqio
from t5.data import preprocessors
from t5.evaluation import metrics
seqio.Feature.vocabulary = @seqio.ByteVocabulary()
seqio.TextLineDataSource.split_to_filepattern = {'train': [')" +
                              file + R"('], 'validation': ')" + file +
                              R"('}
seqio.Task:
  name = 'my_task'
  source = @seqio.TextLineDataSource()
  preprocessors = [@preprocessors.parse_tsv, @seqio.preprocessors.tokenize_and_append_eos]
  output_features = {'inputs': @seqio.Feature(), 'targets': @seqio.Feature()}
  metric_fns = [@metrics.accuracy, @metrics.sequence_accuracy]
seqio.TaskRegistry.tasks = [@seqio.Task()]
seqio.Mixture.name = 'mix'
seqio.Mixture.tasks = [('my_task', 3), 'number_to_words']
seqio.MixtureRegistry.mixtures = [@seqio.Mixture()]
utils.DatasetConfig:
  mixture_or_task_name = 'mix'
  task_feature_lengths = {'inputs': 32, 'targets': 64}
  split = 'train'
  batch_size = 4
  shuffle = True
  seed = 7
)");
  const auto* task = tasks.get("my_task")->tasks().front();
  ASSERT_EQ(task->metric_fns().size(), 2u);
  EXPECT_EQ(task->metric_fns()[1]({"a", "b"}, {"a", "c"}),
            (MetricValues{{"sequence_accuracy", 50.0}}));
  StreamPtr stream = task->stream({.epochs = 1});
  EXPECT_EQ(testing::rows_text(*stream),
            R"([{"inputs":[114,113,104,1],"inputs_pretokenized":"one","targets":[52,1],)"
            R"("targets_pretokenized":"1"},{"inputs":[119,122,114,1],"inputs_pretokenized":"two",)"
            R"("targets":[53,1],"targets_pretokenized":"2"}])");
  const auto config = config_->call_as<DatasetConfig>("utils.DatasetConfig");
  EXPECT_EQ(config.seed, 7);
  const auto mixture = find_provider(tasks, config);
  // Of any of its tasks, as in seqio; those that have the split are mixed.
  EXPECT_EQ(mixture->splits(), (std::vector<std::string>{"train", "validation", "test"}));
  StreamPtr mixed = mixture->stream({.seed = 7});
  int own = 0;
  Example example;
  for (int i = 0; i < 4000; ++i) {
    ASSERT_TRUE(mixed->next(example));
    own += !example.text("inputs_pretokenized").starts_with("words: ");
  }
  EXPECT_NEAR(own / 4000.0, 0.75, 4 * std::sqrt(0.75 * 0.25 / 4000));
}

TEST_F(GinTasks, PartsOfAMixtureDrawDifferentExamples) {
  StreamPtr stream = tasks_of("").get("number_words")->stream({.seed = 1});
  std::set<std::string> to_words, to_digits;
  Example example;
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(stream->next(example));
    const std::string& inputs = example.text("inputs_pretokenized");
    const bool words = inputs.starts_with("words: ");
    (words ? to_words : to_digits)
        .insert(words ? inputs.substr(7) : example.text("targets_pretokenized"));
  }
  std::vector<std::string> both;
  std::set_intersection(to_words.begin(), to_words.end(), to_digits.begin(), to_digits.end(),
                        std::back_inserter(both));
  EXPECT_LT(both.size(), 30u);  // short numbers come often
}

/// The gin files that tutorials use.
TEST_F(GinTasks, ShippedTaskFilesWork) {
  std::string corpus, pairs;
  for (int i = 0; i < 400; ++i) {
    corpus += "The quick brown fox number " + std::to_string(i) + " jumps over a lazy dog.\n";
    pairs += "question " + std::to_string(i) + "\tanswer " + std::to_string(i) + "\n";
  }
  const std::string text_file = write("corpus.txt", corpus), tsv_file = write("pairs.tsv", pairs);
  const auto report =
      train_tokenizer({.inputs = {text_file}, .vocab_size = 60}, (folder_ / "v").string());
  const std::filesystem::path folder = QUINTET_SOURCE_DIR "/models/configs/quintet/tasks";
  const auto load = [&](const char* file, const std::string& macro, const std::string& value) {
    config_ = std::make_unique<gin::Config>(names_, gin::Config::Options());
    config_->parse_file((folder / file).string());
    config_->parse_bindings(
        {macro + " = '" + value + "'", "VOCABULARY_FILE = '" + report.model_file + "'"});
    config_->finalize();
    return make_task_registry(*config_);
  };
  const Lengths lengths = {{"inputs", 64}, {"targets", 32}};
  for (const char* split : {"train", "validation"}) {
    const auto text = load("text_files.gin", "TEXT_FILES", text_file);
    StreamPtr stream =
        text.get("text_files")->stream({.split = split, .sequence_length = lengths, .epochs = 1});
    EXPECT_FALSE(collect(*stream).empty());
    const auto tsv = load("tsv.gin", "TSV_FILES", tsv_file);
    StreamPtr rows =
        tsv.get("tsv")->stream({.split = split, .sequence_length = lengths, .epochs = 1});
    EXPECT_EQ(collect(*rows).size(), split == std::string("train") ? 380u : 20u);
  }
}

TEST_F(GinTasks, MistakesAreNamed) {
  EXPECT_TRUE(contains(message_of(ExitCode::kUsage, [&] { tasks_of("").get("number_word"); }),
                       "number_words"));
  EXPECT_TRUE(contains(
      message_of(
          ExitCode::kUsage,
          [&] { StreamPtr s = tasks_of("").get("number_to_words")->stream({.split = "dev"}); }),
      "it has test, train, validation"));
  message_of(ExitCode::kUsage, [&] { tasks_of("seqio.TaskRegistry.tasks = [3]"); });
  EXPECT_TRUE(contains(message_of(ExitCode::kUsage,
                                  [&] {
                                    tasks_of(
                                        "seqio.Mixture.name = 'm'\n"
                                        "seqio.Mixture.tasks = ['number_to_word']\n"
                                        "seqio.MixtureRegistry.mixtures = [@seqio.Mixture()]");
                                  }),
                       "number_to_words"));
}

TEST_F(GinTasks, ATaskThatForgetsToTokenizeIsReported) {
  const auto vocabulary = std::make_shared<ByteVocabulary>();
  const Task task({.name = "raw",
                   .source = std::make_shared<TextLineDataSource>(
                       SplitToFiles{{"train", {write("a.txt", "x\n")}}}),
                   .preprocessors = {},
                   .output_features = {{"text", {vocabulary}}}});
  StreamPtr stream = task.stream({.epochs = 1});
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { collect(*stream); }), "tokenize"));
}

TEST_F(GinTasks, ShowPrintsRawPreprocessedAndPacked) {
  char* buffer = nullptr;
  size_t size = 0;
  std::FILE* out = open_memstream(&buffer, &size);
  show(*tasks_of("").get("number_to_words"), {.split = "validation", .num = 2}, out);
  std::fclose(out);
  const std::string text(buffer, size);
  free(buffer);
  for (const char* part : {"number_to_words raw, split validation", "inputs: \"words: 1",
                           "targets: \"one thousand", "number_to_words preprocessed",
                           "number_to_words packed", "encoder_input_tokens", "sequences"})
    EXPECT_TRUE(contains(text, part));
}

}  // namespace
}  // namespace quintet::data
