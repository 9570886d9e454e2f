#include "runtime/base/files/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace quintet {

std::string read_file(const std::filesystem::path& file, ExitCode code,
                      std::optional<int64_t> limit) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  QT_CHECK_AS(code, descriptor >= 0, "{}: cannot open: {}", file.string(), std::strerror(errno));
  const auto closer = std::unique_ptr<const int, void (*)(const int*)>(
      &descriptor, [](const int* d) { ::close(*d); });
  struct stat info {};
  QT_CHECK_AS(code, ::fstat(descriptor, &info) == 0, "{}: cannot read: {}", file.string(),
              std::strerror(errno));
  QT_CHECK_AS(code, !S_ISDIR(info.st_mode), "{}: is a directory, expected a file", file.string());
  if (!limit && !S_ISREG(info.st_mode)) limit = kMostBytes;
  const auto check_size = [&](int64_t bytes, std::string_view least) {
    QT_CHECK_AS(code, !limit || bytes <= *limit, "{}: holds {}{} bytes; the limit is {}",
                file.string(), least, bytes, limit.value_or(0));
  };
  check_size(info.st_size, "");
  // One byte more than a file says, so that its end is met in the first round; those of
  // /proc say 0.
  std::string text(static_cast<size_t>(std::max<int64_t>(info.st_size + 1, 1 << 16)), '\0');
  size_t size = 0;
  for (ssize_t got = 1; got != 0; size += static_cast<size_t>(got)) {
    check_size(static_cast<int64_t>(size), "at least ");
    if (size == text.size())
      text.resize(limit ? std::min(2 * size, static_cast<size_t>(*limit) + 1) : 2 * size);
    do got = ::read(descriptor, text.data() + size, text.size() - size);
    while (got < 0 && errno == EINTR);
    QT_CHECK_AS(code, got >= 0, "{}: cannot read: {}", file.string(), std::strerror(errno));
  }
  text.resize(size);
  return text;
}

void check_is_fetched(std::string_view bytes, const std::filesystem::path& file) {
  QT_CHECK_AS(ExitCode::kData, !bytes.starts_with("version https://git-lfs.github.com/spec/"),
              "{}: is Git LFS's pointer to a file that was not fetched; run 'git lfs pull' there",
              file.string());
}

}  // namespace quintet
