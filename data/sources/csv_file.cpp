#include "data/sources/csv_file.h"

#include <algorithm>

#include "data/sources/record_index.h"
#include "data/vocabularies/utf8.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

constexpr std::string_view kUtf8Mark = "\xEF\xBB\xBF";

/// Goes over a file byte by byte and knows which newlines end a record.
class RecordScanner {
 public:
  explicit RecordScanner(CsvFormat format) : format_(format) {}
  /// Whether the record ends with this byte.
  bool ends_with(char c) {
    if (state_ == State::quoted) {
      if (c == '"') state_ = State::after_quote;
      return false;
    }
    if (c == '\n') {
      state_ = State::field_start;
      return true;
    }
    if (c == format_.delimiter)
      state_ = State::field_start;
    else if (c == '"' && format_.quoted && state_ != State::plain)
      state_ = State::quoted;  // at the start of a field, or doubled
    else
      state_ = State::plain;
    return false;
  }

 private:
  enum class State { field_start, plain, quoted, after_quote };
  CsvFormat format_;
  State state_ = State::field_start;
};

/// Appends where the records begin, the header first, without the first `skip` of them and blank ones.
void find_csv_records(const InputFile& file, int64_t skip, CsvFormat format,
                      std::vector<int64_t>& starts) {
  std::vector<char> block(InputFile::kBlockBytes);
  RecordScanner scanner(format);
  int64_t start = 0, offset = 0;
  bool blank = true;
  const auto end_record = [&](int64_t next) {
    if (skip > 0)
      --skip;
    else if (!blank)
      starts.push_back(start);
    start = next;
    blank = true;
  };
  while (const size_t n = file.read(block.data(), block.size(), offset)) {
    size_t i = 0;
    if (offset == 0 && std::string_view(block.data(), n).starts_with(kUtf8Mark))
      start = static_cast<int64_t>(i = kUtf8Mark.size());
    for (; i < n; ++i) {
      const char c = block[i];
      if (scanner.ends_with(c))
        end_record(offset + static_cast<int64_t>(i) + 1);
      else if (c != ' ' && c != '\r')
        blank = false;
    }
    offset += static_cast<int64_t>(n);
  }
  if (start < offset) end_record(offset);
}

class CsvFile final : public RecordFile {
 public:
  CsvFile(const std::string& path, const FileOptions& options, CsvFormat format)
      : file_(path),
        most_bytes_(options.max_line_bytes),
        format_(format),
        index_(file_,
               fmt::format("csv {} {} {}", options.skip_header_lines, int{format.delimiter},
                           format.quoted),
               [&](std::vector<int64_t>& starts) {
                 find_csv_records(file_, options.skip_header_lines, format, starts);
               }) {
    QT_CHECK_AS(ExitCode::kData, index_.size() > 0,
                "{}: empty; the first line of such a file names its columns", path);
    append_record(0, header_);
  }
  const std::string& path() const override { return file_.path(); }
  int64_t size() const override { return index_.size() - 1; }

  std::string_view read(int64_t i, std::string& buffer) const override {
    buffer = header_;
    append_record(i + 1, buffer);
    return buffer;
  }

  std::string where(int64_t i) const override { return where_record(i + 1); }

 private:
  /// The record with its newline; what follows it up to the next one is blank.
  void append_record(int64_t record, std::string& out) const {
    const auto [begin, end] = index_.extent(record);
    const size_t before = out.size();
    out.resize(before + static_cast<size_t>(std::min(end - begin, most_bytes_ + 2)));
    file_.read_exactly(out.data() + before, out.size() - before, begin);
    RecordScanner scanner(format_);
    const auto newline = std::find_if(out.begin() + static_cast<std::ptrdiff_t>(before), out.end(),
                                      [&](char c) { return scanner.ends_with(c); });
    out.erase(newline, out.end());
    if (out.ends_with('\r')) out.pop_back();
    QT_CHECK_AS(ExitCode::kData, static_cast<int64_t>(out.size() - before) <= most_bytes_,
                "{}: a record of more than {} bytes; is a quote not closed? Otherwise raise "
                "max_line_bytes",
                where_record(record), most_bytes_);
    const size_t bad = find_bad_utf8(std::string_view(out).substr(before));
    QT_CHECK_AS(ExitCode::kData, bad == std::string::npos,
                "{}: byte {} of the record (0x{:02x}) is not UTF-8; convert the file (iconv -t "
                "UTF-8), or set on_bad_example = 'skip'",
                where_record(record), bad + 1, static_cast<uint8_t>(out[before + bad]));
    out += '\n';
  }

  std::string where_record(int64_t record) const {
    return fmt::format("{}:{}", path(), line_of(file_, index_.extent(record).begin));
  }

  InputFile file_;
  int64_t most_bytes_;
  CsvFormat format_;
  RecordIndex index_;
  std::string header_;
};

/// Takes the next record's fields off the text.
std::vector<std::string> take_fields(std::string_view& text, CsvFormat format) {
  const std::string ends{format.delimiter, '\n'};
  std::vector<std::string> fields;
  while (true) {
    std::string& field = fields.emplace_back();
    if (format.quoted && text.starts_with('"')) {
      text.remove_prefix(1);
      for (size_t end = 0;; field += '"') {
        end = text.find('"');
        QT_CHECK_AS(ExitCode::kData, end != std::string_view::npos,
                    "column {}: a quote that is not closed", fields.size());
        field += text.substr(0, end);
        text.remove_prefix(end + 1);
        if (!text.starts_with('"')) break;  // two stand for one
        text.remove_prefix(1);
      }
      QT_CHECK_AS(ExitCode::kData, text.starts_with(format.delimiter) || text.starts_with('\n'),
                  "column {}: text after the closing quote; a quote in quotes is written twice",
                  fields.size());
    }
    const size_t end = text.find_first_of(ends);
    field += text.substr(0, end);
    const bool last = text[end] == '\n';
    text.remove_prefix(end + 1);
    if (last) return fields;
  }
}

}  // namespace

RecordFilePtr open_csv_file(const std::string& path, const FileOptions& options, CsvFormat format) {
  return std::make_shared<CsvFile>(path, options, format);
}

FileDataSource::ParseRecord parse_csv(CsvFormat format) {
  return [format](std::string_view record, Example& out) {
    const std::vector<std::string> names = take_fields(record, format);
    std::vector<std::string> values = take_fields(record, format);
    QT_CHECK_AS(ExitCode::kData, values.size() == names.size(),
                "{} values, but the first line names {} columns: {}", values.size(), names.size(),
                fmt::join(names, ", "));
    for (size_t i = 0; i < names.size(); ++i) out.set(names[i], std::move(values[i]));
  };
}

CsvDataSource::CsvDataSource(SplitToFiles files, char delimiter, bool quoted, FileOptions options)
    : FileDataSource(
          std::move(files), options,
          [=](const std::string& path) {
            return open_csv_file(path, options, {delimiter, quoted});
          },
          parse_csv({delimiter, quoted})) {}

}  // namespace quintet::data
