#include "data/sources/input_file.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/files/path_map.h"
#include "runtime/base/files/posix_file.h"

namespace quintet::data {
namespace {

/// A file that vanishes when it is closed, written from the front.
class Spool {
 public:
  Spool() : folder_(std::filesystem::temp_directory_path()) {
    std::string name = (folder_ / "quintet-XXXXXX").string();
    descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ < 0) fail_disk(folder_, "create a file to decompress into", errno);
    ::unlink(name.c_str());
  }
  ~Spool() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  void write(const char* bytes, size_t size) {
    while (size > 0) {
      const ssize_t done = ::write(descriptor_, bytes, size);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0)
        fail_disk(folder_, "decompress (TMPDIR names the folder)", errno,
                  static_cast<int64_t>(size));
      bytes += done;
      size -= static_cast<size_t>(done);
    }
  }
  int release() { return std::exchange(descriptor_, -1); }

 private:
  std::filesystem::path folder_;
  int descriptor_;
};

int gunzip(const std::string& path, int descriptor) {
  gzFile file = gzdopen(::dup(descriptor), "rb");
  QT_CHECK_AS(ExitCode::kData, file != nullptr, "{}: cannot open: {}", path, std::strerror(errno));
  const std::unique_ptr<gzFile_s, decltype(&gzclose)> closer(file, gzclose);
  Spool spool;
  std::vector<char> block(InputFile::kBlockBytes);
  int read = 0;
  while ((read = gzread(file, block.data(), static_cast<unsigned>(block.size()))) > 0)
    spool.write(block.data(), static_cast<size_t>(read));
  int code = Z_OK;
  const std::string message = gzerror(file, &code);
  QT_CHECK_AS(ExitCode::kData, read == 0 && (code == Z_OK || code == Z_STREAM_END),
              "{}: damaged gzip file: {}", path, message);
  return spool.release();
}

int unzstd(const std::string& path, int descriptor) {
  const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(),
                                                                     ZSTD_freeDCtx);
  Spool spool;
  std::vector<char> in(InputFile::kBlockBytes), out(InputFile::kBlockBytes);
  size_t hint = 1;  // 0: a frame has just ended
  while (true) {
    const ssize_t got = ::read(descriptor, in.data(), in.size());
    if (got < 0 && errno == EINTR) continue;
    QT_CHECK_AS(ExitCode::kData, got >= 0, "{}: cannot read: {}", path, std::strerror(errno));
    if (got == 0) break;
    ZSTD_inBuffer input{in.data(), static_cast<size_t>(got), 0};
    ZSTD_outBuffer output{};
    do {
      output = {out.data(), out.size(), 0};
      hint = ZSTD_decompressStream(context.get(), &output, &input);
      QT_CHECK_AS(ExitCode::kData, !ZSTD_isError(hint), "{}: damaged zstd file: {}", path,
                  ZSTD_getErrorName(hint));
      spool.write(out.data(), output.pos);
    } while (input.pos < input.size || output.pos == output.size);
  }
  QT_CHECK_AS(ExitCode::kData, hint == 0, "{}: damaged zstd file: it is cut short", path);
  return spool.release();
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  QT_CHECK_AS(ExitCode::kData, descriptor_ >= 0, "{}: cannot open: {}", path_,
              std::strerror(errno));
  try {
    struct stat status {};
    QT_CHECK_AS(ExitCode::kData, ::fstat(descriptor_, &status) == 0 && !S_ISDIR(status.st_mode),
                "{}: is a directory, expected a file", path_);
    compressed_ = path_.ends_with(".gz") || path_.ends_with(".zst");
    if (compressed_) {
      const int plain =
          path_.ends_with(".gz") ? gunzip(path_, descriptor_) : unzstd(path_, descriptor_);
      ::close(std::exchange(descriptor_, plain));
      ::fstat(descriptor_, &status);
    }
    size_ = status.st_size;
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      compressed_(other.compressed_) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

size_t InputFile::read(char* out, size_t bytes, int64_t offset) const {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n =
        ::pread(descriptor_, out + done, bytes - done, offset + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    QT_CHECK_AS(ExitCode::kData, n >= 0, "{}: cannot read: {}", path_, std::strerror(errno));
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

void InputFile::read_exactly(char* out, size_t bytes, int64_t offset) const {
  QT_CHECK_AS(ExitCode::kData, read(out, bytes, offset) == bytes,
              "{}: the file has become shorter since it was opened", path_);
}

int64_t line_of(const InputFile& file, int64_t begin) {
  std::vector<char> block(std::min(InputFile::kBlockBytes, static_cast<size_t>(begin)));
  int64_t newlines = 0;
  for (int64_t offset = 0; offset < begin;) {
    const size_t want = std::min(block.size(), static_cast<size_t>(begin - offset));
    const size_t n = file.read(block.data(), want, offset);
    if (n == 0) break;
    newlines += std::count(block.data(), block.data() + n, '\n');
    offset += static_cast<int64_t>(n);
  }
  return newlines + 1;
}

std::vector<std::string> expand_patterns(const std::vector<std::string>& patterns) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    glob_t found{};
    const int error = ::glob(local_path(pattern).c_str(), GLOB_TILDE | GLOB_BRACE, nullptr, &found);
    files.insert(files.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
    const bool any = error == 0 && found.gl_pathc > 0;
    ::globfree(&found);
    QT_CHECK_AS(ExitCode::kData, any, "{}: no such file (pattern matches nothing); check the path",
                pattern);
  }
  return files;
}

}  // namespace quintet::data
