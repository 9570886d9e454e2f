#include "runtime/base/files/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/check.h"

namespace quintet {
namespace {

// Linux moves at most 2 GiB - 4 KiB in one call.
constexpr size_t kLargestCall = size_t{1} << 30;

const char* advice(int error) {
  switch (error) {
    case ENOSPC:
      return "; free space or choose another folder";
    case EDQUOT:
      return "; the quota is used up";
    case EFBIG:
      return "; raise the file-size limit (ulimit -f)";
    case EROFS:
      return "; the file system is mounted read-only";
    case EACCES:
    case EPERM:
      return "; check the permissions";
    default:
      return "";
  }
}

bool is_about_space(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

}  // namespace

int64_t free_bytes(const std::filesystem::path& path) {
  std::filesystem::path at = std::filesystem::absolute(path);
  struct statvfs info {};
  while (::statvfs(at.c_str(), &info) != 0) {
    if (!at.has_relative_path()) return -1;
    at = at.parent_path();
  }
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

void fail_disk(const std::filesystem::path& path, const std::string& action, int error,
               int64_t bytes_needed) {
  std::string space;
  if (bytes_needed >= 0) space = fmt::format("; {} bytes needed", bytes_needed);
  if (bytes_needed >= 0 || is_about_space(error))
    space += fmt::format("{} {} bytes free", bytes_needed >= 0 ? "," : ";", free_bytes(path));
  fail(ExitCode::kDisk, "{}: cannot {}: {}{}{}", path.string(), action, std::strerror(error), space,
       advice(error));
}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  close();
  descriptor_ = std::exchange(other.descriptor_, -1);
  path_ = std::move(other.path_);
  return *this;
}

File File::create_new(const std::filesystem::path& path) {
  const int descriptor =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor < 0) fail_disk(path, "create", errno);
  return File(descriptor, path);
}

File File::open_read(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  QT_CHECK_AS(ExitCode::kData, descriptor >= 0 || errno != ELOOP,
              "{}: is a symbolic link, expected a file", path.string());
  QT_CHECK_AS(ExitCode::kData, descriptor >= 0 || errno != ENOENT, "{}: is missing", path.string());
  if (descriptor < 0) fail_disk(path, "open", errno);
  File file(descriptor, path);
  struct stat info {};
  QT_CHECK_AS(ExitCode::kData, ::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode),
              "{}: is not an ordinary file", path.string());
  return file;
}

File File::open_write(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor < 0) fail_disk(path, "open", errno);
  return File(descriptor, path);
}

int64_t File::size() const {
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) fail_disk(path_, "stat", errno);
  return info.st_size;
}

void File::write_at(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done =
        ::pwrite(descriptor_, bytes.data(), std::min(bytes.size(), kLargestCall), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0)
      fail_disk(path_, "write", done == 0 ? EIO : errno, static_cast<int64_t>(bytes.size()));
    bytes = bytes.subspan(static_cast<size_t>(done));
    offset += done;
  }
}

void File::read_at(int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t done =
        ::pread(descriptor_, bytes.data(), std::min(bytes.size(), kLargestCall), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_disk(path_, "read", errno);
    QT_CHECK_AS(ExitCode::kData, done > 0, "{}: ends at byte {}, {} more expected", path_.string(),
                offset, bytes.size());
    bytes = bytes.subspan(static_cast<size_t>(done));
    offset += done;
  }
}

void File::reserve(int64_t bytes) { reserve_space(descriptor_, path_, bytes); }

void File::trim() {
  // The same size again: what lies beyond it is freed.
  if (::ftruncate(descriptor_, size()) != 0) fail_disk(path_, "trim", errno);
}

void File::sync() {
  if (::fsync(descriptor_) != 0) fail_disk(path_, "sync", errno);
}

void File::close_checked() {
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_disk(path_, "close", errno);
}

void File::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

void reserve_space(int descriptor, const std::filesystem::path& path, int64_t bytes) {
  if (bytes <= 0 || ::fallocate(descriptor, FALLOC_FL_KEEP_SIZE, 0, bytes) == 0) return;
  if (errno != EOPNOTSUPP && errno != EINVAL && errno != ENOSYS)
    fail_disk(path, "reserve space", errno, bytes);
}

void start_writing_out(int descriptor) {
  // What fails here fails in sync(), too.
  static_cast<void>(::sync_file_range(descriptor, 0, 0, SYNC_FILE_RANGE_WRITE));
}

bool is_there(const std::filesystem::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR) fail_disk(path, "look up", errno);
  return false;
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error))
    names.push_back(at->path().filename().string());
  if (error) fail_disk(folder, "list", error.value());
  std::sort(names.begin(), names.end());
  return names;
}

namespace {

void sync_opened(const std::filesystem::path& folder, int (*sync)(int descriptor)) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail_disk(folder, "open", errno);
  const int failed = sync(descriptor);
  const int error = errno;
  ::close(descriptor);
  // EINVAL: a file system whose folders need no syncing.
  if (failed != 0 && error != EINVAL) fail_disk(folder, "sync", error);
}

}  // namespace

void sync_folder(const std::filesystem::path& folder) { sync_opened(folder, ::fsync); }

void sync_file_system(const std::filesystem::path& folder) { sync_opened(folder, ::syncfs); }

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    fail_disk(from, fmt::format("rename to {}", to.string()), errno);
}

void make_folder(const std::filesystem::path& folder) {
  if (::mkdir(folder.c_str(), 0777) != 0) fail_disk(folder, "create folder", errno);
}

void make_folders(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::path at = folder;  // without a slash at its end, which would follow a link
  if (!at.has_filename()) at = at.parent_path();
  for (; !at.empty(); at = at.has_relative_path() ? at.parent_path() : "")
    if (std::filesystem::is_symlink(at, error) && !std::filesystem::exists(at, error) && !error)
      fail(ExitCode::kDisk,
           "{}: {} is a dangling link: its target {} is not there; create it or remove the link",
           folder.string(), at == folder ? "it" : at.string(),
           std::filesystem::read_symlink(at, error).string());
  std::filesystem::create_directories(folder, error);
  if (error) fail_disk(folder, "create folder", error.value());
  if (!std::filesystem::is_directory(folder)) fail_disk(folder, "use as folder", ENOTDIR);
}

void remove_tree(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error && error.value() != ENOENT) fail_disk(path, "remove", error.value());
}

}  // namespace quintet
