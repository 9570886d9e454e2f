#include "data/sources/line_files.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "data/vocabularies/utf8.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr size_t kBlockBytes = size_t{1} << 20;

std::vector<std::string> expand(const std::string& pattern) {
  glob_t found{};
  const int error = ::glob(pattern.c_str(), GLOB_TILDE | GLOB_BRACE, nullptr, &found);
  std::vector<std::string> files(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  QT_CHECK_AS(ExitCode::kData, error == 0 && !files.empty(),
              "{}: no such file (pattern matches nothing); check the path", pattern);
  return files;
}

std::string decompress(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  QT_CHECK_AS(ExitCode::kData, file != nullptr, "{}: cannot open: {}", path, std::strerror(errno));
  std::string text;
  std::vector<char> block(kBlockBytes);
  int read = 0;
  while ((read = gzread(file, block.data(), static_cast<unsigned>(block.size()))) > 0)
    text.append(block.data(), static_cast<size_t>(read));
  int code = Z_OK;
  const std::string message = gzerror(file, &code);
  gzclose(file);
  QT_CHECK_AS(ExitCode::kData, read == 0 && (code == Z_OK || code == Z_STREAM_END),
              "{}: damaged gzip file: {}", path, message);
  return text;
}

/// An open file that is closed at the end of its life.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    QT_CHECK_AS(ExitCode::kData, fd_ >= 0, "{}: cannot open: {}", path, std::strerror(errno));
    struct stat status {};
    QT_CHECK_AS(ExitCode::kData, ::fstat(fd_, &status) == 0 && !S_ISDIR(status.st_mode),
                "{}: is a directory, expected a text file", path);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  /// Bytes read, less than asked for only at the end of the file.
  size_t read(char* out, size_t bytes, int64_t offset, const std::string& path) const {
    size_t done = 0;
    while (done < bytes) {
      const ssize_t n = ::pread(fd_, out + done, bytes - done, offset + static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      QT_CHECK_AS(ExitCode::kData, n >= 0, "{}: cannot read: {}", path, std::strerror(errno));
      if (n == 0) break;
      done += static_cast<size_t>(n);
    }
    return done;
  }

 private:
  int fd_ = -1;
};

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

struct LineFiles::File {
  std::string path;
  Descriptor descriptor;  // plain files
  std::string text;       // compressed files
  bool in_memory = false;
  std::vector<int64_t> starts;  // of each line
  std::vector<int64_t> ends;    // only where lines were left out; else the next start

  size_t read_bytes(char* out, size_t bytes, int64_t offset) const {
    if (!in_memory) return descriptor.read(out, bytes, offset, path);
    const size_t from = std::min(text.size(), static_cast<size_t>(offset));
    return text.copy(out, bytes, from);
  }

  /// Finds the lines. `starts` gets one more entry: the end of the last line.
  void index(int64_t skip, bool skip_blank_lines) {
    std::string line;  // of the line at hand, only when blank lines matter
    std::vector<char> block(kBlockBytes);
    int64_t line_start = 0, offset = 0;
    const auto end_line = [&](int64_t end) {
      const bool blank = skip_blank_lines && is_blank(line);
      line.clear();
      if (skip > 0)
        --skip;
      else if (!blank) {
        starts.push_back(line_start);
        ends.push_back(end);
      }
      line_start = end + 1;
    };
    while (const size_t n = read_bytes(block.data(), block.size(), offset)) {
      const char* at = block.data();
      const char* const stop = at + n;
      if (offset == 0 && std::string_view(at, n).starts_with(kByteOrderMark)) {
        line_start = static_cast<int64_t>(kByteOrderMark.size());
        at += kByteOrderMark.size();
      }
      while (const void* newline = std::memchr(at, '\n', static_cast<size_t>(stop - at))) {
        const char* end = static_cast<const char*>(newline);
        if (skip_blank_lines) line.append(at, end);
        end_line(offset + (end - block.data()));
        at = end + 1;
      }
      if (skip_blank_lines) line.append(at, stop);
      offset += static_cast<int64_t>(n);
    }
    if (line_start < offset) end_line(offset);  // no newline at the end of the file
    starts.shrink_to_fit();
    ends.shrink_to_fit();
  }

  /// Counted from 1.
  int64_t line_number(int64_t i) const {
    const int64_t end = starts[static_cast<size_t>(i)];
    std::vector<char> block(std::min(kBlockBytes, static_cast<size_t>(end)));
    int64_t newlines = 0;
    for (int64_t offset = 0; offset < end;) {
      const size_t want = std::min(block.size(), static_cast<size_t>(end - offset));
      const size_t n = read_bytes(block.data(), want, offset);
      if (n == 0) break;
      newlines += std::count(block.data(), block.data() + n, '\n');
      offset += static_cast<int64_t>(n);
    }
    return newlines + 1;
  }
};

LineFiles::LineFiles(const SplitToFiles& files, const std::string& split,
                     const FileOptions& options, bool skip_blank_lines)
    : options_(options) {
  const auto found = files.find(split);
  QT_CHECK_AS(ExitCode::kData, found != files.end(), "unknown split '{}'; the source has {}", split,
              fmt::join(split_names(files), ", "));
  first_line_.push_back(0);
  for (const std::string& pattern : found->second)
    for (const std::string& path : expand(pattern)) {
      File file;
      file.path = path;
      file.descriptor = Descriptor(path);
      if (path.ends_with(".gz")) {
        file.text = decompress(path);
        file.in_memory = true;
        file.descriptor = Descriptor();
      }
      file.index(options.skip_header_lines, skip_blank_lines);
      first_line_.push_back(first_line_.back() + static_cast<int64_t>(file.starts.size()));
      files_.push_back(std::move(file));
    }
  QT_CHECK_AS(ExitCode::kData, size() > 0, "{}: no line of data in the files of split '{}'",
              where(-1), split);
}

LineFiles::~LineFiles() = default;

const LineFiles::File& LineFiles::file_of(int64_t& i) const {
  QT_ASSERT(i >= 0 && i < size());
  const auto after = std::upper_bound(first_line_.begin(), first_line_.end(), i);
  const auto file = static_cast<size_t>(after - first_line_.begin()) - 1;
  i -= first_line_[file];
  return files_[file];
}

void LineFiles::read(int64_t i, std::string& line) const {
  int64_t local = i;
  const File& file = file_of(local);
  const int64_t start = file.starts[static_cast<size_t>(local)];
  const int64_t bytes = file.ends[static_cast<size_t>(local)] - start;
  QT_CHECK_AS(ExitCode::kData, bytes <= options_.max_line_bytes,
              "{}: a line of {} bytes, expected at most {}; cut it, or raise max_line_bytes",
              where(i), bytes, options_.max_line_bytes);
  line.resize(static_cast<size_t>(bytes));
  const size_t got = file.read_bytes(line.data(), line.size(), start);
  QT_CHECK_AS(ExitCode::kData, got == line.size(),
              "{}: the file has become shorter since it was opened", where(i));
  if (line.ends_with('\r')) line.pop_back();
  const size_t bad = find_bad_utf8(line);
  QT_CHECK_AS(
      ExitCode::kData, bad == std::string::npos,
      "{}: byte {} of the line (0x{:02x}) is not UTF-8; convert the file (iconv -t UTF-8), or "
      "set on_bad_example = 'skip'",
      where(i), bad + 1, static_cast<uint8_t>(line[bad]));
}

std::vector<std::string> LineFiles::files() const {
  std::vector<std::string> paths;
  for (const File& file : files_) paths.push_back(file.path);
  return paths;
}

std::string LineFiles::where(int64_t i) const {
  if (i >= 0) {
    const File& file = file_of(i);
    return fmt::format("{}:{}", file.path, file.line_number(i));
  }
  if (files_.empty()) return "no file";
  return files_.size() == 1
             ? files_.front().path
             : fmt::format("{} and {} more files", files_.front().path, files_.size() - 1);
}

std::vector<std::string> split_names(const SplitToFiles& files) {
  std::vector<std::string> names;
  for (const auto& [name, patterns] : files) names.push_back(name);
  return names;
}

}  // namespace quintet::data
