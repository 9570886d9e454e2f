// SuperGLUE: the JSON lines of its eight tasks and two diagnostic sets. Source of the forms: tfds 4.9, text/super_glue.py.
#include <algorithm>
#include <cctype>
#include <set>

#include "data/prepare/prepare.h"
#include "data/vocabularies/utf8.h"
#include "runtime/base/check.h"
#include "runtime/base/formats/json.h"

namespace quintet::data {
namespace {

namespace fs = std::filesystem;

struct SuperGlueTask {
  std::string config, subfolder;
  std::vector<std::string> texts, numbers;
  std::vector<std::string> labels = {"False", "True"};
};

int64_t label_of(const SuperGlueTask& task, const Json& label) {
  if (label.is_bool()) return label.as_bool();
  if (!label.is_string()) {
    QT_CHECK_AS(ExitCode::kData, label.as_int() == 0 || label.as_int() == 1,
                "{}: expected 0 or 1, found {}", label.path(), label.as_int());
    return label.as_int();
  }
  const auto found = std::ranges::find(task.labels, label.as_string());
  QT_CHECK_AS(ExitCode::kData, found != task.labels.end(), "{}: '{}' is none of {}", label.path(),
              label.as_string(), fmt::join(task.labels, ", "));
  return found - task.labels.begin();
}

/// Its label, -1 in a test split that has none.
void set_label(const SuperGlueTask& task, const Json& row, bool is_test, Example& example) {
  QT_CHECK_AS(ExitCode::kData, is_test || row.has("label"), "{}: has no label", row.path());
  example.set("label", row.has("label") ? label_of(task, row["label"]) : int64_t{-1});
}

/// In WSC some spans are not substrings of their text: they begin with another case, end with a full stop, hold a line end.
void fix_span(const std::string& span, const Json& row, Example& example) {
  std::string text = example.text(span + "_text");
  const std::string& whole = example.text("text");
  if (whole.find(text) != std::string::npos) return;
  // These two have words between their names.
  if (text == "Kamenev and Zinoviev" || text == "Kamenev, Zinoviev, and Stalin") return;
  if (text.find("theyscold") != std::string::npos) example.set("span2_index", int64_t{10});
  const int64_t index = std::get<int64_t>(example.at(span + "_index"));
  constexpr const char* kSpaces = " \t\n\r\v\f";
  size_t word = whole.find_first_not_of(kSpaces);
  for (int64_t i = 0; i < index && word != std::string::npos; ++i)
    word = whole.find_first_not_of(kSpaces, whole.find_first_of(kSpaces, word));
  QT_CHECK_AS(ExitCode::kData, word != std::string::npos && index >= 0 && !text.empty(),
              "{}: word {} of the text, where {} lies, is not there", row.path(), index, span);
  const auto character = [](char c) { return static_cast<unsigned char>(c); };
  const bool small = std::islower(character(whole[word])) != 0;
  text[0] = static_cast<char>(small ? std::tolower(character(text[0]))
                                    : std::toupper(character(text[0])));
  while (text.ends_with('.')) text.pop_back();
  std::ranges::replace(text, '\n', ' ');
  QT_CHECK_AS(ExitCode::kData, whole.find(text) != std::string::npos,
              "{}: {} '{}' is no part of the text", row.path(), span, text);
  example.set(span + "_text", text);
}

void add_row(const SuperGlueTask& task, const Json& row, bool is_test, const TfdsWriter::Add& add) {
  const Json& fields = task.config.starts_with("wsc") ? row["target"] : row;
  const auto field = [&](const std::string& name) {
    return fields.has(name) ? fields[name] : row[name];
  };
  Example example;
  for (const std::string& name : task.texts) example.set(name, field(name).as_string());
  for (const std::string& name : task.numbers) example.set(name, field(name).as_int());
  if (task.config == "wsc.fixed")
    for (const char* span : {"span1", "span2"}) fix_span(span, row, example);
  example.set("idx", row["idx"].as_int());
  set_label(task, row, is_test, example);
  add(std::to_string(row["idx"].as_int()), example);
}

void add_multirc(const SuperGlueTask& task, const Json& row, const TfdsWriter::Add& add) {
  const Json paragraph = row["passage"];
  for (const Json& question : paragraph["questions"].items())
    for (const Json& answer : question["answers"].items()) {
      Example example;
      example.set("paragraph", paragraph["text"].as_string());
      example.set("question", question["question"].as_string());
      example.set("answer", answer["text"].as_string());
      const int64_t places[] = {row["idx"].as_int(), question["idx"].as_int(),
                                answer["idx"].as_int()};
      const char* names[] = {"idx/paragraph", "idx/question", "idx/answer"};
      for (size_t i = 0; i < std::size(places); ++i) example.set(names[i], places[i]);
      set_label(task, answer, true, example);
      add(fmt::format("{}", fmt::join(places, "_")), example);
    }
}

/// Characters [begin, end] of a text.
std::string characters(const std::string& text, int64_t begin, int64_t end) {
  size_t at = 0, first = std::string::npos;
  for (int64_t i = 0; at < text.size() && i <= end; ++i) {
    if (i == begin) first = at;
    at += std::max<size_t>(1, utf8_sequence(std::string_view(text).substr(at)));
  }
  return first == std::string::npos ? "" : text.substr(first, at - first);
}

void add_record(const Json& row, const TfdsWriter::Add& add) {
  const Json passage = row["passage"];
  const std::string text = passage["text"].as_string();
  std::set<std::string> entities;
  for (const Json& entity : passage["entities"].items())
    entities.insert(characters(text, entity["start"].as_int(), entity["end"].as_int()));
  for (const Json& question : row["qas"].items()) {
    std::set<std::string> answers;
    if (question.has("answers"))
      for (const Json& answer : question["answers"].items())
        answers.insert(answer["text"].as_string());
    Example example;
    example.set("passage", text);
    example.set("query", question["query"].as_string());
    example.set("entities", std::vector<std::string>(entities.begin(), entities.end()));
    example.set("answers", std::vector<std::string>(answers.begin(), answers.end()));
    example.set("idx/passage", row["idx"].as_int());
    example.set("idx/query", question["idx"].as_int());
    add(std::to_string(question["idx"].as_int()), example);
  }
}

void generate(const SuperGlueTask& task, const fs::path& file, bool is_test,
              const TfdsWriter::Add& add) {
  for (const Json& row : Json::read_lines(file))
    if (task.config == "multirc")
      add_multirc(task, row, add);
    else if (task.config == "record")
      add_record(row, add);
    else
      add_row(task, row, is_test, add);
}

tfds::Feature features_of(const SuperGlueTask& task) {
  std::vector<std::pair<std::string, tfds::Feature>> features;
  for (const std::string& name : task.texts) features.emplace_back(name, tfds::text());
  for (const std::string& name : task.numbers) features.emplace_back(name, tfds::scalar("int32"));
  const auto places = [](std::initializer_list<const char*> names) {
    std::vector<std::pair<std::string, tfds::Feature>> numbers;
    for (const char* name : names) numbers.emplace_back(name, tfds::scalar("int32"));
    return tfds::dict(std::move(numbers));
  };
  if (task.config == "record") {
    for (const char* name : {"entities", "answers"})
      features.emplace_back(name, tfds::sequence(tfds::text()));
    features.emplace_back("idx", places({"passage", "query"}));
    return tfds::dict(std::move(features));
  }
  features.emplace_back("label", tfds::class_label(task.labels));
  features.emplace_back("idx", task.config == "multirc"
                                   ? places({"paragraph", "question", "answer"})
                                   : tfds::scalar("int32"));
  return tfds::dict(std::move(features));
}

ArchiveDataset super_glue(const SuperGlueTask& task) {
  std::vector<std::pair<std::string, std::string>> splits = {
      {"train", "train.jsonl"}, {"validation", "val.jsonl"}, {"test", "test.jsonl"}};
  if (task.config == "axb" || task.config == "axg") splits = {{"test", task.subfolder + ".jsonl"}};
  ArchiveDataset made{.dataset = {.name = "super_glue",
                                  .config = task.config,
                                  .version = "1.0.2",
                                  .features = features_of(task)},
                      .older_versions = {},
                      .files = {},
                      .splits = {}};
  for (const auto& [split, file] : splits) {
    made.files += (made.files.empty() ? "" : ", ") + task.subfolder + "/" + file;
    made.splits.push_back({split, [task, file, is_test = split == "test"](
                                      const fs::path& from, const TfdsWriter::Add& add) {
                             generate(task, archive_file(from, task.subfolder, file), is_test, add);
                           }});
  }
  return made;
}

}  // namespace

std::vector<ArchiveDataset> super_glue_datasets() {
  const std::vector<std::string> entailed = {"entailment", "not_entailment"},
                                 pair = {"premise", "hypothesis"},
                                 spans = {"text", "span1_text", "span2_text"},
                                 places = {"span1_index", "span2_index"};
  std::vector<ArchiveDataset> made;
  for (const SuperGlueTask& task : std::vector<SuperGlueTask>{
           {"boolq", "BoolQ", {"question", "passage"}, {}},
           {"cb", "CB", pair, {}, {"entailment", "contradiction", "neutral"}},
           {"copa",
            "COPA",
            {"premise", "choice1", "choice2", "question"},
            {},
            {"choice1", "choice2"}},
           {"multirc", "MultiRC", {"paragraph", "question", "answer"}, {}},
           {"record", "ReCoRD", {"passage", "query"}, {}},
           {"rte", "RTE", pair, {}, entailed},
           {"wic", "WiC", {"word", "sentence1", "sentence2"}, {"start1", "start2", "end1", "end2"}},
           {"wsc", "WSC", spans, places},
           {"wsc.fixed", "WSC", spans, places},
           {"axb", "AX-b", {"sentence1", "sentence2"}, {}, entailed},
           {"axg", "AX-g", pair, {}, entailed}})
    made.push_back(super_glue(task));
  return made;
}

}  // namespace quintet::data
