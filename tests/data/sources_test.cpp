#include "data/examples/data_source.h"
#include "data/preprocessors/text_preprocessors.h"
#include "tests/data/files.h"
#include "tests/data/rows.h"

namespace quintet::data {
namespace {

using testing::contains;
using testing::message_of;
using testing::rows_text;
using Sources = testing::FileTest;

StreamPtr once(const DataSource& source, const std::string& split = "train") {
  return read_stream(source.open(split), {.epochs = 1});
}

TEST_F(Sources, LinesWithAnyEndsAndAByteOrderMark) {
  const TextLineDataSource source(
      {{"train", {write("a.txt", "\xEF\xBB\xBFone\r\ntwo\n\nthree"), write("b.txt", "four\n")}}});
  EXPECT_EQ(rows_text(*once(source)),
            R"([{"text":"one"},{"text":"two"},{"text":""},{"text":"three"},{"text":"four"}])");
  EXPECT_TRUE(source.open("train")->where(3).ends_with("a.txt:4"));
  EXPECT_TRUE(source.open("train")->where(4).ends_with("b.txt:1"));
}

TEST_F(Sources, PatternsAreSortedAndGzipIsRead) {
  write_gz("part-1.txt.gz", "c\nd");
  write_gz("part-0.txt.gz", "a\nb\n");
  const TextLineDataSource source({{"train", {(folder_ / "part-*.txt.gz").string()}}});
  EXPECT_EQ(rows_text(*once(source)), R"([{"text":"a"},{"text":"b"},{"text":"c"},{"text":"d"}])");
}

TEST_F(Sources, HeaderLinesAreSkippedInEveryFile) {
  const TextLineDataSource source({{"train", {write("a", "h\n1\n"), write("b", "h\n2\n")}}},
                                  {.skip_header_lines = 1});
  EXPECT_EQ(rows_text(*once(source)), R"([{"text":"1"},{"text":"2"}])");
}

TEST_F(Sources, LinesLongerThanABlockAreWhole) {
  const std::string line(3 << 20, 'x');
  const TextLineDataSource source({{"train", {write("a", "s\n" + line + "\nt")}}});
  StreamPtr stream = once(source);
  const auto examples = collect(*stream);
  ASSERT_EQ(examples.size(), 3u);
  EXPECT_EQ(examples[1].text("text"), line);
  EXPECT_EQ(examples[2].text("text"), "t");
}

TEST_F(Sources, CsvFieldsAsRfc4180) {
  const std::string csv =
      "\xEF\xBB\xBFq,a\r\n\"one, \"\"two\"\"\nthree\",5\" wide\r\n\r\n,\"\"\nlast,x";
  const CsvDataSource source({{"train", {write("a.csv", csv)}}});
  EXPECT_EQ(rows_text(*once(source)),
            R"([{"a":"5\" wide","q":"one, \"two\"\nthree"},{"a":"","q":""},{"a":"x","q":"last"}])");
  EXPECT_TRUE(source.open("train")->where(1).ends_with("a.csv:5"));
  // The columns of each file are its own; a quote begins nothing where fields are not quoted.
  const CsvDataSource tabs(
      {{"train", {write("a.tsv", "q\ta\n\"x\t1,2\n"), write("b.tsv", "a\tq\n3\ty\n")}}}, '\t',
      false);
  EXPECT_EQ(rows_text(*once(tabs)), R"([{"a":"1,2","q":"\"x"},{"a":"3","q":"y"}])");
}

TEST_F(Sources, CsvRecordsMayCrossBlocks) {
  const std::string field((1 << 20) - 5, 'x');  // a quote is the last byte of the first block
  const CsvDataSource source({{"train", {write("a.csv", "a\n\"" + field + "\n\"\"y\"\nz\n")}}});
  StreamPtr stream = once(source);
  const auto examples = collect(*stream);
  ASSERT_EQ(examples.size(), 2u);
  EXPECT_EQ(examples[0].text("a"), field + "\n\"y");
  EXPECT_EQ(examples[1].text("a"), "z");
}

TEST_F(Sources, WrongCsvIsNamedByFileAndLine) {
  for (const auto& [text, expected] :
       {std::pair("", "a.csv: empty; the first line"), std::pair("a,b\n", "no example"),
        std::pair("a,b\n1,2\n\n1,2,3\n", "a.csv:4: 3 values, but the first line names 2 columns"),
        std::pair("a,b\n1,\"2\n3,4\n", "a.csv:2: column 2: a quote that is not closed"),
        std::pair("a,b\n\"1\"2,3\n", "a.csv:2: column 1: text after the closing quote"),
        std::pair("a,b\n1,\xFF\n", "a.csv:2: byte 3 of the record (0xff) is not UTF-8")}) {
    const CsvDataSource source({{"train", {write("a.csv", text)}}});
    const std::string message = message_of(ExitCode::kData, [&] {
      StreamPtr stream = once(source);
      collect(*stream);
    });
    EXPECT_TRUE(contains(message, expected)) << message;
  }
}

TEST_F(Sources, TsvColumnsAndJsonlFields) {
  const TsvDataSource tsv({{"train", {write("a.tsv", "1\tone\n\n2\ttwo\n")}}}, {"n", "word"});
  EXPECT_EQ(rows_text(*once(tsv)), R"([{"n":"1","word":"one"},{"n":"2","word":"two"}])");
  const JsonlDataSource jsonl(
      {{"train",
        {write("a.jsonl", "{\"inputs\": \"a\", \"n\": 3, \"x\": [1, 2], \"y\": null}\n\n")}}});
  EXPECT_EQ(rows_text(*once(jsonl)), R"([{"inputs":"a","n":3,"x":[1,2]}])");
  const JsonlDataSource some({{"train", {(folder_ / "a.jsonl").string()}}}, {"inputs"});
  EXPECT_EQ(rows_text(*once(some)), R"([{"inputs":"a"}])");
}

TEST_F(Sources, ErrorsNameFileLineAndWhatWasExpected) {
  const auto read_all = [](const DataSource& source) { collect(*once(source)); };
  const auto text_error = [&](const std::string& file) {
    return message_of(ExitCode::kData, [&] { read_all(TextLineDataSource({{"train", {file}}})); });
  };
  EXPECT_TRUE(contains(text_error("/no/such/file.txt"), "/no/such/file.txt"));
  EXPECT_TRUE(contains(text_error(folder_.string()), "directory"));
  EXPECT_TRUE(contains(text_error(write("empty.txt", "")), "empty.txt"));
  EXPECT_TRUE(contains(text_error(write("latin.txt", "ok\ncaf\xE9\n")), "latin.txt:2: byte 4"));
  std::string damaged;
  {
    write_gz("good.gz", std::string(100'000, 'a') + "\nb\n");
    std::ifstream in(folder_ / "good.gz", std::ios::binary);
    damaged.assign(std::istreambuf_iterator<char>(in), {});
  }
  EXPECT_TRUE(
      contains(text_error(write("cut.gz", damaged.substr(0, damaged.size() / 2))), "cut.gz"));

  const TsvDataSource tsv({{"train", {write("a.tsv", "1\tone\n2\n")}}});
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { read_all(tsv); }),
                       "a.tsv:2: 1 tab-separated columns, expected 2 (inputs, targets)"));
  const JsonlDataSource jsonl(
      {{"train", {write("a.jsonl", "{\"inputs\": \"a\"}\n{\"inputs\": \n")}}});
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { read_all(jsonl); }), "a.jsonl:2"));
  const JsonlDataSource missing({{"train", {write("b.jsonl", "{\"inputs\": \"a\"}\n")}}},
                                {"targets"});
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { read_all(missing); }),
                       "b.jsonl:1: field 'targets' is missing; there are: inputs"));
  const TextLineDataSource longest({{"train", {write("long.txt", "12345\n123456\n")}}},
                                   {.max_line_bytes = 5});
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { read_all(longest); }), "long.txt:2"));
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { tsv.open("test"); }), "'test'"));
}

TEST_F(Sources, BadExamplesAreSkippedOnRequest) {
  const TsvDataSource tsv({{"train", {write("a.tsv", "1\tone\nbad\n\xFF\t3\n2\ttwo\n")}}}, {},
                          {.on_bad_example = OnBadExample::skip});
  EXPECT_EQ(rows_text(*once(tsv)),
            R"([{"inputs":"1","targets":"one"},{"inputs":"2","targets":"two"}])");
  const TextLineDataSource text({{"train", {write("b.txt", "1\tone\nbad\n2\ttwo\n")}}},
                                {.on_bad_example = OnBadExample::skip});
  StreamPtr parsed = ParseTsv{}.apply(once(text), {});
  EXPECT_EQ(rows_text(*parsed),
            R"([{"inputs":"1","targets":"one"},{"inputs":"2","targets":"two"}])");
}

TEST_F(Sources, PreprocessorErrorsNameTheLineToo) {
  const TextLineDataSource text({{"train", {write("b.txt", "1\tone\nbad\n")}}});
  EXPECT_TRUE(contains(message_of(ExitCode::kData,
                                  [&] {
                                    StreamPtr parsed = ParseTsv{}.apply(once(text), {});
                                    collect(*parsed);
                                  }),
                       "b.txt:2: 1 columns, expected 2"));
}

TEST_F(Sources, AnEpochIsAPermutationAndEpochsDiffer) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += std::to_string(i) + "\n";
  const TextLineDataSource source({{"train", {write("n.txt", text)}}});
  const auto order = [&](int64_t seed, int64_t epochs) {
    std::vector<std::string> lines;
    StreamPtr stream =
        read_stream(source.open("train"), {.shuffle = true, .seed = seed, .epochs = epochs});
    for (const Example& example : collect(*stream)) lines.push_back(example.text("text"));
    return lines;
  };
  const auto two = order(1, 2);
  ASSERT_EQ(two.size(), 200u);
  std::vector<std::string> first(two.begin(), two.begin() + 100),
      second(two.begin() + 100, two.end());
  EXPECT_EQ(first, order(1, 1));
  EXPECT_NE(first, second);
  EXPECT_NE(first, order(2, 1));
  EXPECT_TRUE(std::is_permutation(first.begin(), first.end(), second.begin()));
  std::sort(first.begin(), first.end());
  EXPECT_EQ(std::unique(first.begin(), first.end()), first.end());
}

TEST_F(Sources, HoldingOutDividesOneFile) {
  const auto lines = std::make_shared<TextLineDataSource>(
      SplitToFiles{{"train", {write("a.txt", "0\n1\n2\n3\n4\n5\n6\n")}}});
  const HoldOutDataSource source(lines, 3);
  EXPECT_EQ(rows_text(*once(source, "validation")), R"([{"text":"0"},{"text":"3"},{"text":"6"}])");
  EXPECT_EQ(rows_text(*once(source, "train")),
            R"([{"text":"1"},{"text":"2"},{"text":"4"},{"text":"5"}])");
  EXPECT_TRUE(source.open("train")->where(2).ends_with("a.txt:5"));
  message_of(ExitCode::kUsage, [&] { HoldOutDataSource(lines, 1); });
}

TEST_F(Sources, AnEmptySetEndsAnEvaluationAndFailsATraining) {
  const FunctionDataSource empty("nothing", {{"train", {0, [](int64_t, Example&) {}}}});
  Example example;
  EXPECT_FALSE(read_stream(empty.open("train"), {.epochs = 1})->next(example));
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { read_stream(empty.open("train"), {}); }),
                       "nothing train"));
}

TEST_F(Sources, AFileThatLosesLinesIsNoticed) {
  const std::string file = write("a.txt", "one\ntwo\n");
  const TextLineDataSource source({{"train", {file}}});
  const auto reader = source.open("train");
  std::filesystem::resize_file(file, 5);
  Example example;
  EXPECT_TRUE(contains(message_of(ExitCode::kData, [&] { reader->read(1, example); }), "shorter"));
}

}  // namespace
}  // namespace quintet::data
