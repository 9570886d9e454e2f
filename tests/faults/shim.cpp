// LD_PRELOAD library that makes the N-th file operation below one folder go wrong.
//
//   QT_FAULT=CALL:N=ACTION   CALL: open write fsync rename unlink mkdir fallocate truncate close read
//                            flock, or any (all but read and flock). N counts from 1; "N+": that one and all later.
//                            ACTION: an errno name, KILL (SIGKILL before the call), POWER and
//                            POWER_UNDONE (below), SLEEP<milliseconds>, WAIT (until nobody has the
//                            lock of QT_FAULT_GATE, a file), FLIP (of a read: its last four bytes
//                            begin with another bit).
//   QT_FAULT_DIR=FOLDER      operations elsewhere are neither counted nor touched.
//   QT_FAULT_LOG=FILE        one line a counted operation.
//
// POWER is a power cut as unkind as POSIX allows: file contents that were not synced are lost (the file
// is empty), new names in folders that were not synced are gone, renames have happened. POWER_UNDONE
// also takes back the renames whose folder was not synced.

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Plan {
  std::string call, action;
  long at = 0;
  bool and_later = false;
};

struct State {
  std::string folder;
  Plan plan;
  int log = -1;
  std::atomic<long> counted{0}, matched{0};
  std::mutex mutex;                       // of what follows
  std::set<ino_t> unsynced_contents;      // files
  std::map<ino_t, ino_t> unsynced_names;  // new entry -> its folder
  struct Rename {
    std::string from, to;
    ino_t folder;
    bool exchange;
  };
  std::vector<Rename> unsynced_renames;
};

State* make_state() {
  auto* state = new State;
  if (const char* folder = getenv("QT_FAULT_DIR")) {
    std::error_code error;
    state->folder = fs::weakly_canonical(folder, error).string();
  }
  if (const char* text = getenv("QT_FAULT")) {
    char call[32] = "", number[32] = "", action[32] = "";
    if (sscanf(text, "%31[^:]:%31[^=]=%31s", call, number, action) != 3) {
      fprintf(stderr, "shim: cannot parse QT_FAULT=%s\n", text);
      _exit(98);
    }
    state->plan = {call, action, atol(number), number[strlen(number) - 1] == '+'};
  }
  if (const char* log = getenv("QT_FAULT_LOG"))
    state->log = static_cast<int>(
        syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  return state;
}

State& state() {
  static State* instance = make_state();
  return *instance;
}

std::string path_of(int descriptor) {
  char link[64], target[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const long size = syscall(SYS_readlinkat, AT_FDCWD, link, target, sizeof target);
  return size > 0 ? std::string(target, static_cast<size_t>(size)) : "";
}

std::string absolute(int folder, const char* path) {
  if (path == nullptr) return "";
  if (path[0] == '/') return path;
  const std::string base = folder == AT_FDCWD ? path_of(-1) : path_of(folder);
  if (!base.empty()) return base + "/" + path;
  char cwd[PATH_MAX];
  return (getcwd(cwd, sizeof cwd) != nullptr ? std::string(cwd) : "") + "/" + path;
}

bool is_watched(const std::string& path) {
  const std::string& folder = state().folder;
  return !folder.empty() && path.compare(0, folder.size(), folder) == 0 &&
         (path.size() == folder.size() || path[folder.size()] == '/');
}

int number_of(const std::string& name) {
  static const std::map<std::string, int> numbers = {
      {"ENOSPC", ENOSPC},         {"EIO", EIO},       {"EDQUOT", EDQUOT}, {"EFBIG", EFBIG},
      {"EOPNOTSUPP", EOPNOTSUPP}, {"ENOLCK", ENOLCK}, {"EROFS", EROFS},   {"EACCES", EACCES},
      {"ESTALE", ESTALE},         {"EINTR", EINTR}};
  const auto found = numbers.find(name);
  return found != numbers.end() ? found->second : EIO;
}

ino_t inode_of(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

void lose_power(bool undo_renames) {
  State& s = state();
  const std::string folder = s.folder;
  s.folder.clear();  // what follows is not counted
  if (undo_renames)
    for (auto renamed = s.unsynced_renames.rbegin(); renamed != s.unsynced_renames.rend();
         ++renamed)
      syscall(SYS_renameat2, AT_FDCWD, renamed->to.c_str(), AT_FDCWD, renamed->from.c_str(),
              renamed->exchange ? RENAME_EXCHANGE : 0);
  std::vector<std::string> all;
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(folder, ignored))
    all.push_back(entry.path().string());
  for (const std::string& path : all) {
    const ino_t inode = inode_of(path);
    if (s.unsynced_names.count(inode) != 0)
      fs::remove_all(path, ignored);
    else if (s.unsynced_contents.count(inode) != 0)
      (void)!truncate(path.c_str(), 0);
  }
}

void wait_at_gate() {
  const char* gate = getenv("QT_FAULT_GATE");
  const long file = syscall(SYS_openat, AT_FDCWD, gate, O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    fprintf(stderr, "shim: cannot open QT_FAULT_GATE=%s\n", gate);
    _exit(98);
  }
  while (syscall(SYS_flock, file, LOCK_SH) != 0 && errno == EINTR) {
  }
  syscall(SYS_close, file);
}

constexpr int kFlip = -1;

/// Counts an operation; the errno it must fail with, 0: go on. Does not return from KILL and POWER.
int strike(const char* call, const std::string& path) {
  if (!is_watched(path)) return 0;
  State& s = state();
  const std::string& wanted = s.plan.call;
  const bool is_in_any = strcmp(call, "read") != 0 && strcmp(call, "flock") != 0;
  if (!is_in_any && wanted != call) return 0;
  const long total = ++s.counted;
  if (s.log >= 0) dprintf(s.log, "%ld %s %s\n", total, call, path.c_str());
  if (wanted != call && wanted != "any") return 0;
  const long number = ++s.matched;
  if (number != s.plan.at && !(s.plan.and_later && number > s.plan.at)) return 0;
  const std::string& action = s.plan.action;
  if (action == "FLIP") return kFlip;
  if (action == "POWER" || action == "POWER_UNDONE") {
    const std::lock_guard lock(s.mutex);
    lose_power(action == "POWER_UNDONE");
    raise(SIGKILL);
  }
  if (action == "KILL") raise(SIGKILL);
  if (action.compare(0, 5, "SLEEP") == 0) {
    // delay: the fault is a slow call
    usleep(static_cast<useconds_t>(atol(action.c_str() + 5) * 1000));
    return 0;
  }
  if (action == "WAIT") {
    wait_at_gate();
    return 0;
  }
  return number_of(action);
}

void note_contents(int descriptor, bool synced) {
  struct stat info {};
  if (fstat(descriptor, &info) != 0) return;
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (!synced) {
    s.unsynced_contents.insert(info.st_ino);
  } else if (S_ISDIR(info.st_mode)) {
    std::erase_if(s.unsynced_names, [&](const auto& name) { return name.second == info.st_ino; });
    std::erase_if(s.unsynced_renames, [&](const auto& r) { return r.folder == info.st_ino; });
  } else {
    s.unsynced_contents.erase(info.st_ino);
  }
}

void note_name(const std::string& path) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.unsynced_names[inode_of(path)] = inode_of(fs::path(path).parent_path().string());
}

int failed(int error) {
  errno = error;
  return -1;
}

int open_as(int folder, const char* path, int flags, mode_t mode) {
  const std::string whole = absolute(folder, path);
  if (const int error = strike("open", whole)) return failed(error);
  const bool watched = is_watched(whole);
  const bool is_new = watched && (flags & O_CREAT) != 0 && inode_of(whole) == 0;
  const int descriptor = static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
  if (descriptor >= 0 && is_new) note_name(whole);
  if (descriptor >= 0 && watched && (is_new || (flags & O_TRUNC) != 0))
    note_contents(descriptor, false);
  return descriptor;
}

template <typename Call>
ssize_t write_as(int descriptor, const Call& call) {
  const std::string path = path_of(descriptor);
  if (const int error = strike("write", path)) return failed(error);
  const ssize_t result = call();
  if (is_watched(path)) note_contents(descriptor, false);
  return result;
}

template <typename Call>
int sync_as(int descriptor, const Call& call) {
  const std::string path = path_of(descriptor);
  if (const int error = strike("fsync", path)) return failed(error);
  const int result = call();
  if (result == 0 && is_watched(path)) note_contents(descriptor, true);
  return result;
}

int rename_as(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  const std::string source = absolute(from_folder, from), target = absolute(to_folder, to);
  if (const int error = strike("rename", target)) return failed(error);
  const int result =
      static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
  if (result == 0 && is_watched(target)) {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    s.unsynced_renames.push_back({source, target, inode_of(fs::path(target).parent_path().string()),
                                  (flags & RENAME_EXCHANGE) != 0});
  }
  return result;
}

mode_t mode_from(int flags, va_list args) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
}

}  // namespace

extern "C" {

#define OPEN_WRAPPER(folder)                    \
  {                                             \
    va_list args;                               \
    va_start(args, flags);                      \
    const mode_t mode = mode_from(flags, args); \
    va_end(args);                               \
    return open_as(folder, path, flags, mode);  \
  }
int open(const char* path, int flags, ...)
    OPEN_WRAPPER(AT_FDCWD) int open64(const char* path, int flags, ...)
        OPEN_WRAPPER(AT_FDCWD) int openat(int folder, const char* path, int flags, ...)
            OPEN_WRAPPER(folder) int openat64(int folder, const char* path, int flags, ...)
                OPEN_WRAPPER(folder)

                    ssize_t write(int descriptor, const void* data, size_t size) {
  return write_as(descriptor, [&] { return syscall(SYS_write, descriptor, data, size); });
}
ssize_t pwrite(int descriptor, const void* data, size_t size, off_t offset) {
  return write_as(descriptor,
                  [&] { return syscall(SYS_pwrite64, descriptor, data, size, offset); });
}
ssize_t pwrite64(int descriptor, const void* data, size_t size, off64_t offset) {
  return pwrite(descriptor, data, size, offset);
}
ssize_t pread(int descriptor, void* data, size_t size, off_t offset) {
  const int error = strike("read", path_of(descriptor));
  if (error > 0) return failed(error);
  const long got = syscall(SYS_pread64, descriptor, data, size, offset);
  if (error == kFlip && got >= 4) static_cast<unsigned char*>(data)[got - 4] ^= 1;
  return got;
}
ssize_t pread64(int descriptor, void* data, size_t size, off64_t offset) {
  return pread(descriptor, data, size, offset);
}
int fsync(int descriptor) {
  return sync_as(descriptor, [&] { return static_cast<int>(syscall(SYS_fsync, descriptor)); });
}
int syncfs(int descriptor) {
  if (const int error = strike("fsync", path_of(descriptor))) return failed(error);
  const int result = static_cast<int>(syscall(SYS_syncfs, descriptor));
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (result == 0) {
    s.unsynced_contents.clear();
    s.unsynced_names.clear();
    s.unsynced_renames.clear();
  }
  return result;
}
int fdatasync(int descriptor) {
  return sync_as(descriptor, [&] { return static_cast<int>(syscall(SYS_fdatasync, descriptor)); });
}
int ftruncate(int descriptor, off_t size) {
  const std::string path = path_of(descriptor);
  if (const int error = strike("truncate", path)) return failed(error);
  const int result = static_cast<int>(syscall(SYS_ftruncate, descriptor, size));
  if (is_watched(path)) note_contents(descriptor, false);
  return result;
}
int flock(int descriptor, int operation) {
  if (const int error = strike("flock", path_of(descriptor))) return failed(error);
  return static_cast<int>(syscall(SYS_flock, descriptor, operation));
}
int ftruncate64(int descriptor, off64_t size) { return ftruncate(descriptor, size); }
int fallocate(int descriptor, int mode, off_t offset, off_t size) {
  const std::string path = path_of(descriptor);
  if (const int error = strike("fallocate", path)) return failed(error);
  if (is_watched(path)) note_contents(descriptor, false);
  return static_cast<int>(syscall(SYS_fallocate, descriptor, mode, offset, size));
}
int fallocate64(int descriptor, int mode, off64_t offset, off64_t size) {
  return fallocate(descriptor, mode, offset, size);
}
int close(int descriptor) {
  const int flags = fcntl(descriptor, F_GETFL);
  if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY) {
    if (const int error = strike("close", path_of(descriptor))) {
      syscall(SYS_close, descriptor);
      return failed(error);
    }
  }
  return static_cast<int>(syscall(SYS_close, descriptor));
}
int rename(const char* from, const char* to) { return rename_as(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  return rename_as(from_folder, from, to_folder, to, 0);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  return rename_as(from_folder, from, to_folder, to, flags);
}
int unlinkat(int folder, const char* path, int flags) {
  if (const int error = strike("unlink", absolute(folder, path))) return failed(error);
  return static_cast<int>(syscall(SYS_unlinkat, folder, path, flags));
}
int unlink(const char* path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char* path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char* path) {
  const int result = unlinkat(AT_FDCWD, path, 0);
  return result != 0 && errno == EISDIR ? unlinkat(AT_FDCWD, path, AT_REMOVEDIR) : result;
}
int mkdirat(int folder, const char* path, mode_t mode) {
  const std::string whole = absolute(folder, path);
  if (const int error = strike("mkdir", whole)) return failed(error);
  const int result = static_cast<int>(syscall(SYS_mkdirat, folder, path, mode));
  if (result == 0 && is_watched(whole)) note_name(whole);
  return result;
}
int mkdir(const char* path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

}  // extern "C"
