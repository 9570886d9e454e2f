// Text files, line by line.
#include <algorithm>
#include <cstring>

#include "data/sources/record_files.h"
#include "data/sources/record_index.h"
#include "data/vocabularies/utf8.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r") == std::string_view::npos;
}

/// Appends where the lines begin, without the first `skip` of them and, if asked, the blank ones.
void find_lines(const InputFile& file, int64_t skip, bool skip_blank_lines,
                std::vector<int64_t>& starts) {
  std::vector<char> block(InputFile::kBlockBytes);
  int64_t line_start = 0, offset = 0;
  bool blank = true;  // so far
  const auto end_line = [&](int64_t next) {
    if (skip > 0)
      --skip;
    else if (!skip_blank_lines || !blank)
      starts.push_back(line_start);
    line_start = next;
    blank = true;
  };
  while (const size_t n = file.read(block.data(), block.size(), offset)) {
    const char* at = block.data();
    const char* const stop = at + n;
    if (offset == 0 && std::string_view(at, n).starts_with(kByteOrderMark)) {
      line_start = static_cast<int64_t>(kByteOrderMark.size());
      at += kByteOrderMark.size();
    }
    while (at < stop) {
      const void* newline = std::memchr(at, '\n', static_cast<size_t>(stop - at));
      const char* end = newline != nullptr ? static_cast<const char*>(newline) : stop;
      blank = blank && is_blank({at, end});
      if (newline == nullptr) break;
      end_line(offset + (end - block.data()) + 1);
      at = end + 1;
    }
    offset += static_cast<int64_t>(n);
  }
  if (line_start < offset) end_line(offset);  // no newline at the end of the file
}

class LineFile final : public RecordFile {
 public:
  LineFile(const std::string& path, const FileOptions& options, bool skip_blank_lines)
      : file_(path),
        most_bytes_(options.max_line_bytes),
        index_(
            file_,
            fmt::format("lines {}{}", options.skip_header_lines, skip_blank_lines ? " filled" : ""),
            [&](std::vector<int64_t>& starts) {
              find_lines(file_, options.skip_header_lines, skip_blank_lines, starts);
            }) {}
  const std::string& path() const override { return file_.path(); }
  int64_t size() const override { return index_.size(); }

  std::string_view read(int64_t i, std::string& buffer) const override {
    // Up to the next line that counts: blank ones may lie between.
    const auto [begin, end] = index_.extent(i);
    buffer.resize(static_cast<size_t>(std::min(end - begin, most_bytes_ + 2)));
    file_.read_exactly(buffer.data(), buffer.size(), begin);
    std::string_view line = buffer;
    line = line.substr(0, line.find('\n'));
    if (line.ends_with('\r')) line.remove_suffix(1);
    QT_CHECK_AS(ExitCode::kData, static_cast<int64_t>(line.size()) <= most_bytes_,
                "{}: a line of more than {} bytes; cut it, or raise max_line_bytes", where(i),
                most_bytes_);
    const size_t bad = find_bad_utf8(line);
    QT_CHECK_AS(
        ExitCode::kData, bad == std::string::npos,
        "{}: byte {} of the line (0x{:02x}) is not UTF-8; convert the file (iconv -t UTF-8), or "
        "set on_bad_example = 'skip'",
        where(i), bad + 1, static_cast<uint8_t>(line[bad]));
    return line;
  }

  std::string where(int64_t i) const override {
    return fmt::format("{}:{}", path(), line_of(file_, index_.extent(i).begin));
  }

 private:
  InputFile file_;
  int64_t most_bytes_;
  RecordIndex index_;
};

}  // namespace

RecordFilePtr open_line_file(const std::string& path, const FileOptions& options,
                             bool skip_blank_lines) {
  return std::make_shared<LineFile>(path, options, skip_blank_lines);
}

}  // namespace quintet::data
