// Sources that read files record by record: text, TSV, JSONL.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "data/examples/data_source.h"
#include "data/examples/json_feature.h"
#include "data/sources/input_file.h"
#include "data/sources/record_files.h"
#include "runtime/base/check.h"
#include "runtime/base/formats/json.h"

namespace quintet::data {
namespace {

class FileReader final : public Reader {
 public:
  FileReader(RecordFiles files, FileDataSource::ParseRecord parse, OnBadExample on_bad)
      : files_(std::move(files)), parse_(std::move(parse)) {
    on_bad_example = on_bad;
  }
  std::optional<int64_t> size() const override { return files_.size(); }
  std::string where(int64_t i) const override { return files_.where(i); }
  std::vector<std::string> files() const override { return files_.paths(); }
  void read(int64_t i, Example& out) const override {
    thread_local std::string buffer;
    const std::string_view record = files_.read(i, buffer);
    try {
      parse_(record, out);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", where(i), error.what()));
    }
  }

 private:
  RecordFiles files_;
  FileDataSource::ParseRecord parse_;
};

void parse_text(std::string_view line, Example& out) { out.set("text", std::string(line)); }

FileDataSource::ParseRecord parse_tsv(std::vector<std::string> names) {
  return [names = std::move(names)](std::string_view line, Example& out) {
    const auto columns = std::count(line.begin(), line.end(), '\t') + 1;
    QT_CHECK_AS(ExitCode::kData, columns == static_cast<int64_t>(names.size()),
                "{} tab-separated columns, expected {} ({})", columns, names.size(),
                fmt::join(names, ", "));
    size_t start = 0;
    for (const std::string& name : names) {
      const size_t end = std::min(line.find('\t', start), line.size());
      out.set(name, std::string(line.substr(start, end - start)));
      start = end + 1;
    }
  };
}

std::string names_in(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.members()) names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

FileDataSource::ParseRecord parse_jsonl(std::vector<std::string> fields) {
  return [fields = std::move(fields)](std::string_view line, Example& out) {
    const Json json = Json::parse(line, "line");
    QT_CHECK_AS(ExitCode::kData, json.is_object(), "expected a JSON object");
    for (const std::string& field : fields)
      QT_CHECK_AS(ExitCode::kData, json.has(field), "field '{}' is missing; there are: {}", field,
                  names_in(json));
    const bool unnamed = out.items().empty();  // keys are unique: none needs to be looked up
    for (const auto& [name, value] : json.members()) {
      if (!fields.empty() && std::find(fields.begin(), fields.end(), name) == fields.end())
        continue;
      if (value.is_null() && fields.empty()) continue;
      Value feature;
      QT_CHECK_AS(ExitCode::kData, to_feature(value.raw(), feature),
                  "field '{}' must be text, a number or a list of them", name);
      if (unnamed)
        out.items().emplace_back(name, std::move(feature));
      else
        out.set(name, std::move(feature));
    }
  };
}

/// Opens text files; JSON and TSV leave out blank lines.
FileDataSource::OpenFile open_lines(const FileOptions& options, bool skip_blank_lines) {
  return [=](const std::string& path) { return open_line_file(path, options, skip_blank_lines); };
}

std::vector<std::string> or_default(std::vector<std::string> names) {
  return names.empty() ? std::vector<std::string>{"inputs", "targets"} : std::move(names);
}

}  // namespace

std::shared_ptr<const Reader> file_reader(std::vector<RecordFilePtr> files,
                                          FileDataSource::ParseRecord parse,
                                          const FileOptions& options) {
  return std::make_shared<FileReader>(RecordFiles(std::move(files), options), std::move(parse),
                                      options.on_bad_example);
}

std::optional<OnBadExample> parse_on_bad_example(std::string_view text) {
  if (text == "fail") return OnBadExample::fail;
  if (text == "skip") return OnBadExample::skip;
  constexpr std::string_view kLimited = "skip:";
  if (!text.starts_with(kLimited)) return std::nullopt;
  OnBadExample policy;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data() + kLimited.size(), end, policy.most);
  return error == std::errc() && at == end && policy.most >= 0 ? std::optional(policy)
                                                               : std::nullopt;
}

void Reader::leave_out(int64_t i, const Error& error) const {
  constexpr size_t kLogged = 10;
  if (on_bad_example.most == 0) throw error;
  const std::lock_guard lock(mutex_);
  if (!left_out_.insert(i).second) return;  // in an earlier epoch, too
  if (static_cast<int64_t>(left_out_.size()) > on_bad_example.most)
    fail(error.code(), "{}; {} bad examples were left out before it, which is all that may be",
         error.what(), on_bad_example.most);
  if (left_out_.size() <= kLogged) fmt::print(stderr, "skipped: {}\n", error.what());
}

std::shared_ptr<const Reader> DataSource::open_shard(const std::string& split,
                                                     const ShardInfo& shard) const {
  return every_nth(open(split), shard);
}

FileDataSource::FileDataSource(SplitToFiles files, const FileOptions& options, OpenFile open_file,
                               ParseRecord parse)
    : files_(std::move(files)),
      options_(options),
      open_file_(std::move(open_file)),
      parse_(std::move(parse)) {}

std::vector<std::string> FileDataSource::splits() const {
  std::vector<std::string> names;
  for (const auto& [name, patterns] : files_) names.push_back(name);
  return names;
}

std::vector<std::string> FileDataSource::paths(const std::string& split) const {
  const auto found = files_.find(split);
  QT_CHECK_AS(ExitCode::kData, found != files_.end(), "unknown split '{}'; the source has {}",
              split, fmt::join(splits(), ", "));
  return expand_patterns(found->second);
}

int64_t FileDataSource::num_shards(const std::string& split) const {
  return static_cast<int64_t>(paths(split).size());
}

std::shared_ptr<const Reader> FileDataSource::open(const std::string& split) const {
  return open_shard(split, {});
}

std::shared_ptr<const Reader> FileDataSource::open_shard(const std::string& split,
                                                         const ShardInfo& shard) const {
  const std::vector<std::string> all = paths(split);
  if (static_cast<int64_t>(all.size()) < shard.num_shards)
    return DataSource::open_shard(split, shard);
  std::vector<RecordFilePtr> files;
  for (auto i = static_cast<size_t>(shard.index); i < all.size();
       i += static_cast<size_t>(shard.num_shards))
    files.push_back(open_file_(all[i]));
  auto reader = file_reader(std::move(files), parse_, options_);
  QT_CHECK_AS(ExitCode::kData, shard.num_shards > 1 || reader->size() > 0,
              "{}: no example in the files of split '{}'", reader->where(-1), split);
  return reader;
}

TextLineDataSource::TextLineDataSource(SplitToFiles files, FileOptions options)
    : FileDataSource(std::move(files), options, open_lines(options, false), parse_text) {}

TsvDataSource::TsvDataSource(SplitToFiles files, std::vector<std::string> field_names,
                             FileOptions options)
    : FileDataSource(std::move(files), options, open_lines(options, true),
                     parse_tsv(or_default(std::move(field_names)))) {}

JsonlDataSource::JsonlDataSource(SplitToFiles files, std::vector<std::string> fields,
                                 FileOptions options)
    : FileDataSource(std::move(files), options, open_lines(options, true),
                     parse_jsonl(std::move(fields))) {}

}  // namespace quintet::data
