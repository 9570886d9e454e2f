#include "apps/interactive/examples.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/input/run_vocabularies.h"
#include "data/examples/data_source.h"
#include "data/preprocessors/strings.h"
#include "data/preprocessors/text_preprocessors.h"
#include "data/preprocessors/token_preprocessors.h"
#include "runtime/base/check.h"
#include "runtime/base/files/path_map.h"

namespace quintet {
namespace {

using InputAndTarget = std::pair<std::string, std::string>;

constexpr std::string_view kArrow = "=>";

/// Under the name T5X's InteractiveModel has for it, or a task's.
std::string member_of(const nlohmann::json& example, const std::string& name) {
  for (const std::string& key : {name, name + "s"})
    if (const auto found = example.find(key); found != example.end() && found->is_string())
      return found->get<std::string>();
  return "";
}

/// In a few words, however deep it is.
std::string found(const nlohmann::json& value) {
  if (value.is_array()) return "a list in a list";
  if (!value.is_object()) return value.dump();
  std::vector<std::string> names;
  for (const auto& [name, member] : value.items()) names.push_back(name);
  return fmt::format("an object of '{}'", fmt::join(names, "', '"));
}

InputAndTarget pair_of_json(const nlohmann::json& example, bool has_targets) {
  if (example.is_string() && !has_targets) return {example.get<std::string>(), ""};
  const bool is_object = example.is_object();
  InputAndTarget pair;
  if (is_object) pair = {member_of(example, "input"), member_of(example, "target")};
  QT_CHECK(is_object && !pair.first.empty() && (!has_targets || !pair.second.empty()),
           "expected an example such as {}, found {}",
           has_targets ? R"({"input": "words: 17", "target": "seventeen"})"
                       : R"({"input": "words: 17"})",
           found(example));
  return pair;
}

std::vector<InputAndTarget> pairs_of_json(const std::string& text, bool has_targets) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  QT_CHECK(!json.is_discarded(),
           "{}: begins as JSON and is none; a text that begins so is written as JSON: "
           R"({{"input": "{{a"}})",
           text);
  if (!json.is_array()) return {pair_of_json(json, has_targets)};
  std::vector<InputAndTarget> pairs;
  for (const auto& example : json) pairs.push_back(pair_of_json(example, has_targets));
  QT_CHECK(!pairs.empty(), "[]: expected at least one example");
  return pairs;
}

std::vector<InputAndTarget> pairs_of(const std::string& text, bool has_targets) {
  if (text.starts_with('{') || text.starts_with('[')) return pairs_of_json(text, has_targets);
  if (!has_targets) return {{text, ""}};
  const size_t arrow = text.find(kArrow);
  InputAndTarget pair{
      data::strip(text.substr(0, arrow)),
      arrow == std::string::npos ? "" : data::strip(text.substr(arrow + kArrow.size()))};
  QT_CHECK(!pair.first.empty() && !pair.second.empty(),
           "'{}': expected INPUT => TARGET, JSON, @FILE, @TASK or -; 'help' says more", text);
  return {pair};
}

/// A file's, by its name's end; none: the name is not a file's.
data::DataSourcePtr source_of_file(const std::string& file) {
  std::filesystem::path path = file;
  if (path.extension() == ".gz" || path.extension() == ".zst") path = path.stem();
  const std::string format = path.extension().string();
  const data::SplitToFiles files{{"train", {file}}};
  if (format == ".jsonl") return std::make_shared<data::JsonlDataSource>(files);
  if (format == ".csv") return std::make_shared<data::CsvDataSource>(files);
  if (format == ".tsv") return std::make_shared<data::CsvDataSource>(files, '\t', false);
  return nullptr;
}

/// "{field}" of the first example's field that is asked for or has one of the usual names.
std::string format_of_field(const std::string& asked, const std::string& name,
                            const data::Example& first) {
  if (!asked.empty()) return "{" + asked + "}";
  for (const std::string& field : {name, name + "s"})
    if (first.has(field)) return "{" + field + "}";
  return "";
}

std::string task_name_of(const std::string& file) {
  std::string name = std::filesystem::path(file).filename().string();
  name = name.substr(0, name.find('.'));
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

}  // namespace

ExampleReader::ExampleReader(const InteractiveFlags& flags, TrainedModel& trained)
    : flags_(flags), trained_(trained) {
  const ConfiguredModel& model = *trained.model;
  const bool decoder_only = model.model->spec().decoder_only();
  for (const auto& [name, value] :
       {std::pair("inputs", decoder_only ? &model.output_vocabulary : &model.input_vocabulary),
        {"targets", &model.output_vocabulary}}) {
    auto vocabulary = value->object_as<const data::Vocabulary>();
    QT_CHECK(vocabulary != nullptr,
             "quintet interactive: the model has no vocabulary, so its ids are no text; name a gin "
             "file that binds one with --gin_file");
    features_.emplace_back(name, data::Feature{.vocabulary = std::move(vocabulary)});
  }
}

Examples ExampleReader::read(const std::string& text, bool has_targets, const std::string& split,
                             const std::vector<std::string>& block) const {
  if (text.starts_with('@')) {
    const std::string name = text.substr(1);
    if (source_of_file(name) != nullptr) return of_file(local_path(name), has_targets);
    try {
      return of_task(name, split);
    } catch (const Error& error) {
      fail(error.code(), "@{}: {}; files of examples end with .jsonl, .csv or .tsv", name,
           error.what());
    }
  }
  if (text != "-") return of_pairs(pairs_of(text, has_targets));
  std::vector<InputAndTarget> pairs;
  for (const std::string& line : block)
    for (InputAndTarget& pair : pairs_of(line, has_targets)) pairs.push_back(std::move(pair));
  QT_CHECK(!pairs.empty(), "-: no line followed; expected examples and an empty line behind them");
  return of_pairs(std::move(pairs));
}

Examples ExampleReader::of_pairs(std::vector<InputAndTarget> pairs) const {
  data::FunctionDataSource::Split split;
  split.size = std::ssize(pairs);
  split.make = [pairs = std::move(pairs)](int64_t index, data::Example& out) {
    const auto& [input, target] = pairs[static_cast<size_t>(index)];
    out.set("inputs", input);
    out.set("targets", target);
  };
  const std::string name = "examples";
  return {std::make_shared<data::Task>(data::Task::Config{
              .name = name,
              .source = std::make_shared<data::FunctionDataSource>(
                  name, std::map<std::string, data::FunctionDataSource::Split>{{"train",
                                                                                std::move(split)}}),
              .preprocessors = {std::make_shared<data::Tokenize>(),
                                std::make_shared<data::AppendEosAfterTrim>()},
              .output_features = features_}),
          "train"};
}

Examples ExampleReader::of_file(const std::string& file, bool has_targets) const {
  data::Task::Config task{.name = task_name_of(file),
                          .source = source_of_file(file),
                          .preprocessors = {},
                          .output_features = features_};
  const data::Task raw(task);
  const data::StreamPtr stream = raw.raw_stream({.epochs = 1});
  data::Example first;
  QT_CHECK_AS(ExitCode::kData, stream->next(first), "{}: holds no examples", file);
  auto format = std::make_shared<data::FormatPair>();
  format->inputs_format = format_of_field(flags_.input, "input", first);
  format->targets_format = format_of_field(flags_.target, "target", first);
  QT_CHECK_AS(ExitCode::kData,
              !format->inputs_format.empty() && (!has_targets || !format->targets_format.empty()),
              "{}: expected the field{}, found {}; --input=FIELD and --target=FIELD name others",
              first.where(), has_targets ? "s input and target" : " input", to_string(first));
  task.preprocessors = {format, std::make_shared<data::Tokenize>(),
                        std::make_shared<data::AppendEosAfterTrim>()};
  return {std::make_shared<data::Task>(std::move(task)), "train"};
}

Examples ExampleReader::of_task(const std::string& name, const std::string& split) const {
  const size_t colon = name.find(':');
  Examples examples{trained_.session->task(name.substr(0, colon)), split, true};
  const std::vector<std::string> splits = examples.provider->splits();
  if (colon != std::string::npos) examples.split = name.substr(colon + 1);
  QT_CHECK(std::ranges::find(splits, examples.split) != splits.end(),
           "@{}: the task has no split '{}'; it has {}: @TASK:SPLIT", name, examples.split,
           fmt::join(splits, ", "));
  verify_matching_vocabs(*trained_.model, *examples.provider);
  check_ids(*trained_.model, *examples.provider, {.split = examples.split});
  return examples;
}

}  // namespace quintet
