// Sources that read files line by line: text, TSV, JSONL.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/data_source.h"
#include "data/sources/line_files.h"
#include "runtime/base/check.h"
#include "runtime/base/json.h"

namespace quintet::data {
namespace {

class LineReader : public Reader {
 public:
  LineReader(const SplitToFiles& files, const std::string& split, const FileOptions& options,
             bool skip_blank_lines)
      : lines_(files, split, options, skip_blank_lines) {
    on_bad_example = options.on_bad_example;
  }
  std::optional<int64_t> size() const override { return lines_.size(); }
  std::string where(int64_t index) const override { return lines_.where(index); }
  std::vector<std::string> files() const override { return lines_.files(); }

 protected:
  LineFiles lines_;
};

class TextReader final : public LineReader {
 public:
  using LineReader::LineReader;
  void read(int64_t i, Example& out) const override {
    std::string line;
    lines_.read(i, line);
    out.set("text", std::move(line));
  }
};

class TsvReader final : public LineReader {
 public:
  TsvReader(const SplitToFiles& files, const std::string& split, const FileOptions& options,
            std::vector<std::string> names)
      : LineReader(files, split, options, true), names_(std::move(names)) {}
  void read(int64_t i, Example& out) const override {
    std::string line;
    lines_.read(i, line);
    const auto columns = std::count(line.begin(), line.end(), '\t') + 1;
    QT_CHECK_AS(ExitCode::kData, columns == static_cast<int64_t>(names_.size()),
                "{}: {} tab-separated columns, expected {} ({})", where(i), columns, names_.size(),
                fmt::join(names_, ", "));
    size_t start = 0;
    for (const std::string& name : names_) {
      const size_t end = std::min(line.find('\t', start), line.size());
      out.set(name, line.substr(start, end - start));
      start = end + 1;
    }
  }

 private:
  std::vector<std::string> names_;
};

/// A JSON value as a feature; false if it has no form as one.
bool to_feature(const nlohmann::ordered_json& json, Value& value) {
  if (json.is_string()) {
    value = json.get<std::string>();
  } else if (json.is_boolean()) {
    value = static_cast<int64_t>(json.get<bool>());
  } else if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}) {
    return false;
  } else if (json.is_number_integer()) {
    value = json.get<int64_t>();
  } else if (json.is_number()) {
    value = json.get<double>();
  } else if (json.is_array()) {
    const auto all = [&](auto&& test) { return std::all_of(json.begin(), json.end(), test); };
    const auto is_id = [](const nlohmann::ordered_json& x) {
      return x.is_number_integer() && x.get<double>() == static_cast<int32_t>(x.get<int64_t>());
    };
    if (all(is_id))
      value = json.get<Tokens>();
    else if (all([](const nlohmann::ordered_json& x) { return x.is_number(); }))
      value = json.get<std::vector<double>>();
    else if (all([](const nlohmann::ordered_json& x) { return x.is_string(); }))
      value = json.get<std::vector<std::string>>();
    else
      return false;
  } else {
    return false;
  }
  return true;
}

class JsonlReader final : public LineReader {
 public:
  JsonlReader(const SplitToFiles& files, const std::string& split, const FileOptions& options,
              std::vector<std::string> fields)
      : LineReader(files, split, options, true), fields_(std::move(fields)) {}
  void read(int64_t i, Example& out) const override {
    std::string line;
    lines_.read(i, line);
    const Json json = parse(line, i);
    QT_CHECK_AS(ExitCode::kData, json.is_object(), "{}: expected a JSON object", where(i));
    for (const std::string& field : fields_)
      QT_CHECK_AS(ExitCode::kData, json.has(field), "{}: field '{}' is missing", where(i), field);
    for (const auto& [name, value] : json.members()) {
      if (!fields_.empty() && std::find(fields_.begin(), fields_.end(), name) == fields_.end())
        continue;
      if (value.is_null() && fields_.empty()) continue;
      Value feature;
      QT_CHECK_AS(ExitCode::kData, to_feature(value.raw(), feature),
                  "{}: field '{}' must be text, a number or a list of them", where(i), name);
      out.set(name, std::move(feature));
    }
  }

 private:
  Json parse(const std::string& line, int64_t i) const {
    try {
      return Json::parse(line, "line");
    } catch (const Error& error) {  // finding the line's number takes a pass over the file
      fail(ExitCode::kData, "{}: {}", where(i), error.what());
    }
  }
  std::vector<std::string> fields_;
};

}  // namespace

TextLineDataSource::TextLineDataSource(SplitToFiles files, FileOptions options)
    : files_(std::move(files)), options_(options) {}
std::vector<std::string> TextLineDataSource::splits() const { return split_names(files_); }
std::shared_ptr<const Reader> TextLineDataSource::open(const std::string& split) const {
  return std::make_shared<TextReader>(files_, split, options_, false);
}

TsvDataSource::TsvDataSource(SplitToFiles files, std::vector<std::string> field_names,
                             FileOptions options)
    : files_(std::move(files)), field_names_(std::move(field_names)), options_(options) {
  if (field_names_.empty()) field_names_ = {"inputs", "targets"};
}
std::vector<std::string> TsvDataSource::splits() const { return split_names(files_); }
std::shared_ptr<const Reader> TsvDataSource::open(const std::string& split) const {
  return std::make_shared<TsvReader>(files_, split, options_, field_names_);
}

JsonlDataSource::JsonlDataSource(SplitToFiles files, std::vector<std::string> fields,
                                 FileOptions options)
    : files_(std::move(files)), fields_(std::move(fields)), options_(options) {}
std::vector<std::string> JsonlDataSource::splits() const { return split_names(files_); }
std::shared_ptr<const Reader> JsonlDataSource::open(const std::string& split) const {
  return std::make_shared<JsonlReader>(files_, split, options_, fields_);
}

}  // namespace quintet::data
