// GLUE: the files of columns of its nine tasks and of its diagnostic set. Source of the forms: tfds 4.9, text/glue.py.
#include <algorithm>
#include <charconv>
#include <set>

#include "data/prepare/prepare.h"
#include "runtime/base/check.h"
#include "runtime/base/files/read_file.h"
#include "runtime/base/formats/json.h"

namespace quintet::data {
namespace {

namespace fs = std::filesystem;

using Row = std::vector<std::string>;

/// Lines of columns between tabs, nothing quoted. Any line end of Windows, Unix or old Macs; empty lines and a byte order
/// mark are left out.
std::vector<Row> read_rows(const fs::path& file) {
  const std::string bytes = read_file(file);
  std::string_view rest = bytes;
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (rest.starts_with(kMark)) rest.remove_prefix(kMark.size());
  std::vector<Row> rows;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find_first_of("\r\n"), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(rest.size(), end + (rest.substr(end).starts_with("\r\n") ? 2 : 1)));
    if (line.empty()) continue;
    Row& row = rows.emplace_back();
    for (size_t start = 0; start <= line.size();) {
      const size_t tab = std::min(line.find('\t', start), line.size());
      row.emplace_back(line.substr(start, tab - start));
      start = tab + 1;
    }
  }
  return rows;
}

/// A task: its columns by the names of the features, and the names of the labels.
struct GlueTask {
  std::string config, subfolder;
  std::vector<std::pair<std::string, std::string>> texts;
  std::string label_column;
  std::vector<std::string> labels;  // none: a number
};

/// A file with the names of its columns in the first row (of CoLA: without).
class Table {
 public:
  Table(const fs::path& file, std::vector<std::string> columns) : file_(file) {
    rows_ = read_rows(file);
    if (columns.empty() && !rows_.empty()) {
      columns = rows_.front();
      rows_.erase(rows_.begin());
    }
    columns_ = std::move(columns);
  }
  size_t size() const { return rows_.size(); }
  bool has(const std::string& column) const { return std::ranges::count(columns_, column) > 0; }
  /// The value, or null if the row is too short. Throws kData if there is no such column.
  const std::string* at(size_t row, const std::string& column) const {
    const auto found = std::ranges::find(columns_, column);
    QT_CHECK_AS(ExitCode::kData, found != columns_.end(), "{}: has no column '{}'; there are {}",
                file_.string(), column, fmt::join(columns_, ", "));
    const auto place = static_cast<size_t>(found - columns_.begin());
    return place < rows_[row].size() ? &rows_[row][place] : nullptr;
  }
  std::string where(size_t row) const { return fmt::format("{}: example {}", file_.string(), row); }

 private:
  fs::path file_;
  std::vector<std::string> columns_;
  std::vector<Row> rows_;
};

/// A label by its name or number; a number where there are no names.
Value label_of(const GlueTask& task, const std::string& text, const std::string& where) {
  const auto named = std::ranges::find(task.labels, text);
  if (named != task.labels.end()) return int64_t{named - task.labels.begin()};
  const char* const end = text.data() + text.size();
  double number = 0;
  const auto [at, error] = std::from_chars(text.data(), end, number);
  QT_CHECK_AS(ExitCode::kData, error == std::errc() && at == end, "{}: label '{}' is no number{}{}",
              where, text, task.labels.empty() ? "" : " and none of ",
              fmt::join(task.labels, ", "));
  if (task.labels.empty()) return number;
  QT_CHECK_AS(ExitCode::kData,
              number >= -1 && number < static_cast<double>(task.labels.size()) &&
                  number == static_cast<double>(static_cast<int64_t>(number)),
              "{}: label {} is none of the {} classes", where, text, task.labels.size());
  return static_cast<int64_t>(number);
}

Value no_label(const GlueTask& task) {
  return task.labels.empty() ? Value(-1.0) : Value(int64_t{-1});
}

/// Rows that are too short are left out, but counted.
void add_table(const GlueTask& task, const Table& table, const TfdsWriter::Add& add,
               const std::function<bool(size_t row)>& wanted = {}) {
  for (size_t row = 0; row < table.size(); ++row) {
    if (wanted && !wanted(row)) continue;
    Example example;
    bool whole = true;
    for (const auto& [feature, column] : task.texts) {
      const std::string* text = table.at(row, column);
      whole = whole && text != nullptr;
      if (text != nullptr) example.set(feature, *text);
    }
    example.set("label", no_label(task));
    if (table.has(task.label_column)) {
      const std::string* label = table.at(row, task.label_column);
      whole = whole && label != nullptr && !label->empty();
      if (whole) example.set("label", label_of(task, *label, table.where(row)));
    }
    if (!whole) continue;
    example.set("idx", static_cast<int64_t>(row));
    add(std::to_string(row), example);
  }
}

ArchiveDataset dataset_of(const GlueTask& task, std::string files) {
  std::vector<std::pair<std::string, tfds::Feature>> features = {{"idx", tfds::scalar("int32")}};
  for (const auto& [feature, column] : task.texts) features.emplace_back(feature, tfds::text());
  features.emplace_back(
      "label", task.labels.empty() ? tfds::scalar("float32") : tfds::class_label(task.labels));
  return {.dataset = {.name = "glue",
                      .config = task.config,
                      .version = "2.0.0",
                      .features = tfds::dict(std::move(features))},
          .older_versions = {"1.0.0", "1.0.1"},
          .files = std::move(files),
          .splits = {}};
}

/// Splits that are files of their own: split, file.
ArchiveDataset of_tables(GlueTask task,
                         const std::vector<std::pair<std::string, std::string>>& splits) {
  std::vector<std::string> files;
  for (const auto& [split, file] : splits) files.push_back(task.subfolder + "/" + file);
  ArchiveDataset made = dataset_of(task, fmt::format("{}", fmt::join(files, ", ")));
  for (const auto& [split, file] : splits)
    made.splits.push_back(
        {split, [=](const fs::path& from, const TfdsWriter::Add& add) {
           // Its files for training and validation alone name no columns.
           std::vector<std::string> columns;
           if (task.config == "cola" && split != "test")
             columns = {"source", "is_acceptable", "mark", "sentence"};
           add_table(task, Table(archive_file(from, task.subfolder, file), columns), add);
         }});
  return made;
}

ArchiveDataset of_three(GlueTask task) {
  return of_tables(std::move(task),
                   {{"train", "train.tsv"}, {"validation", "dev.tsv"}, {"test", "test.tsv"}});
}

/// MRPC, as Microsoft publishes it: a list of ids divides its one file into training and validation.
ArchiveDataset mrpc() {
  const GlueTask task{.config = "mrpc",
                      .subfolder = "MRPC",
                      .texts = {{"sentence1", "#1 String"}, {"sentence2", "#2 String"}},
                      .label_column = "Quality",
                      .labels = {"not_equivalent", "equivalent"}};
  ArchiveDataset made = dataset_of(
      task, "MRPC/msr_paraphrase_train.txt, MRPC/mrpc_dev_ids.tsv, MRPC/msr_paraphrase_test.txt");
  for (const bool validation : {false, true})
    made.splits.push_back(
        {validation ? "validation" : "train",
         [=](const fs::path& from, const TfdsWriter::Add& add) {
           std::set<std::pair<std::string, std::string>> ids;
           for (const Row& row : read_rows(archive_file(from, "MRPC", "mrpc_dev_ids.tsv")))
             if (row.size() >= 2) ids.emplace(row[0], row[1]);
           const Table table(archive_file(from, "MRPC", "msr_paraphrase_train.txt"), {});
           add_table(task, table, add, [&](size_t row) {
             const std::string *one = table.at(row, "#1 ID"), *two = table.at(row, "#2 ID");
             return one != nullptr && two != nullptr && ids.contains({*one, *two}) == validation;
           });
         }});
  GlueTask test = task;
  test.label_column.clear();  // its labels are not TFDS's
  made.splits.push_back(
      {"test", [test](const fs::path& from, const TfdsWriter::Add& add) {
         add_table(test, Table(archive_file(from, "MRPC", "msr_paraphrase_test.txt"), {}), add);
       }});
  return made;
}

}  // namespace

std::vector<ArchiveDataset> glue_datasets() {
  const std::vector<std::string> entailed = {"entailment", "not_entailment"},
                                 inference = {"entailment", "neutral", "contradiction"};
  const std::vector<std::pair<std::string, std::string>> sentence = {{"sentence", "sentence"}},
                                                         sentences = {{"sentence1", "sentence1"},
                                                                      {"sentence2", "sentence2"}},
                                                         premise = {{"premise", "sentence1"},
                                                                    {"hypothesis", "sentence2"}};
  const auto mnli = [&](const std::string& config,
                        const std::vector<std::pair<std::string, std::string>>& splits) {
    return of_tables({config, "MNLI", premise, "gold_label", inference}, splits);
  };
  return {
      of_three({"cola", "CoLA", sentence, "is_acceptable", {"unacceptable", "acceptable"}}),
      of_three({"sst2", "SST-2", sentence, "label", {"negative", "positive"}}),
      mrpc(),
      of_three({"qqp",
                "QQP",
                {{"question1", "question1"}, {"question2", "question2"}},
                "is_duplicate",
                {"not_duplicate", "duplicate"}}),
      of_three({"stsb", "STS-B", sentences, "score", {}}),
      mnli("mnli", {{"train", "train.tsv"},
                    {"validation_matched", "dev_matched.tsv"},
                    {"validation_mismatched", "dev_mismatched.tsv"},
                    {"test_matched", "test_matched.tsv"},
                    {"test_mismatched", "test_mismatched.tsv"}}),
      mnli("mnli_mismatched",
           {{"validation", "dev_mismatched.tsv"}, {"test", "test_mismatched.tsv"}}),
      mnli("mnli_matched", {{"validation", "dev_matched.tsv"}, {"test", "test_matched.tsv"}}),
      of_three({"qnli",
                "QNLI",
                {{"question", "question"}, {"sentence", "sentence"}},
                "label",
                entailed}),
      of_three({"rte", "RTE", sentences, "label", entailed}),
      of_three({"wnli", "WNLI", sentences, "label", {"not_entailment", "entailment"}}),
      of_tables({"ax", "AX", premise, "", inference}, {{"test", "AX.tsv"}}),
  };
}

}  // namespace quintet::data
