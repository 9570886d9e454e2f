#include "runtime/base/files/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string description() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return fmt::format("host {} pid {} started {}\n", host_name(), ::getpid(), text.data());
}

std::string text_of(int descriptor) {
  std::array<char, 512> text{};
  const ssize_t size = ::pread(descriptor, text.data(), text.size() - 1, 0);
  std::string result(text.data(), size > 0 ? static_cast<size_t>(size) : 0);
  while (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

/// Where locks do not work: the holder is known dead only if it ran on this host.
bool is_dead_here(const std::string& holder) {
  const std::string start = fmt::format("host {} pid ", host_name());
  if (!holder.starts_with(start)) return false;
  const int pid = std::atoi(holder.c_str() + start.size());
  return pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH;
}

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& holder) {
  fail(ExitCode::kUsage,
       "{}: another run is using this folder: {}; wait for it, stop it, or choose another folder "
       "(if that run "
       "is surely gone, delete the file)",
       file.string(), holder.empty() ? "one that is just starting" : holder);
}

/// Takes the lock or throws; false: the file was removed meanwhile by its holder, try again.
bool try_lock(int descriptor, const std::filesystem::path& file) {
  int failed = 0;
  do failed = ::flock(descriptor, LOCK_EX | LOCK_NB);
  while (failed != 0 && errno == EINTR);
  if (failed != 0 && errno == EWOULDBLOCK) refuse(file, text_of(descriptor));
  if (failed != 0) {  // no locks here: the text decides
    const std::string holder = text_of(descriptor);
    if (!holder.empty() && !is_dead_here(holder)) refuse(file, holder);
  }
  struct stat mine {
  }, there{};
  return ::fstat(descriptor, &mine) == 0 && ::stat(file.c_str(), &there) == 0 &&
         mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

int open_locked(const std::filesystem::path& file) {
  for (;;) {
    const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor < 0) fail_disk(file, "create", errno);
    try {
      if (try_lock(descriptor, file)) return descriptor;
    } catch (const Error&) {
      ::close(descriptor);
      throw;
    }
    ::close(descriptor);
  }
}

void write_holder(int descriptor, const std::filesystem::path& file) {
  const std::string text = description();
  if (::ftruncate(descriptor, 0) != 0 ||
      ::pwrite(descriptor, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    fail_disk(file, "write", errno);
}

void release(int descriptor, const std::filesystem::path& file) {
  ::unlink(file.c_str());  // before the lock goes: see try_lock
  ::close(descriptor);
}

}  // namespace

FolderLock::FolderLock(std::filesystem::path folder, std::string name)
    : folder_(std::move(folder)), name_(std::move(name)) {
  make_folders(folder_);
  const std::filesystem::path file = folder_ / name_;
  descriptor_ = open_locked(file);
  try {
    taken_over_from_ = text_of(descriptor_);
    write_holder(descriptor_, file);
    // Only now: the holder removes what looks like a killed run's, a starting one's probe too.
    check_writable(folder_, name_);
  } catch (...) {
    release(descriptor_, file);
    throw;
  }
}

FolderLock FolderLock::held_by_leader(std::filesystem::path folder) {
  FolderLock lock;
  lock.folder_ = std::move(folder);
  return lock;
}

bool FolderLock::is_there(const std::filesystem::path& folder) {
  return quintet::is_there(folder / kName);
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : folder_(std::move(other.folder_)),
      name_(std::move(other.name_)),
      taken_over_from_(std::move(other.taken_over_from_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) release(descriptor_, folder_ / name_);
}

}  // namespace quintet
