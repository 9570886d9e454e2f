// What must be refused before the first step, not at the first save (fault rows C9, C12).

#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "runtime/base/files/atomic_file.h"
#include "tests/checkpoint/scratch.h"
#include "tests/faults/run_driver.h"
#include "tests/harness/wait_for.h"

namespace quintet {
namespace {

using testing::Ended;
using testing::error_of;
using testing::FaultFolder;
using testing::Launch;
using testing::run_driver;

/// Starts a driver that holds the lock until it is killed.
pid_t start_holder(const Launch& launch) {
  const pid_t pid = testing::start_driver(launch);
  const std::string out = launch.model_dir.string() + ".out";
  EXPECT_TRUE(testing::wait_for([&] {
    return std::filesystem::exists(out) && read_file(out).find("holding") != std::string::npos;
  }));
  return pid;
}

TEST(SecondRun, IsRefusedAtOnceAndNamesTheFirst) {
  const FaultFolder folder;
  const Launch first{.model_dir = folder.path() / "run", .hold = true};
  const pid_t holder = start_holder(first);
  // The same folder by another name.
  std::filesystem::create_symlink(first.model_dir, folder.path() / "link");
  const Launch second{.model_dir = folder.path() / "link"};
  const auto start = std::chrono::steady_clock::now();
  const Ended refused = run_driver(second);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(refused.code, 2) << refused.errors;
  for (const std::string& part : {std::string("another run"), fmt::format("pid {} ", holder),
                                  std::string("started 20"), std::string("LOCK")})
    EXPECT_NE(refused.errors.find(part), std::string::npos) << part << ": " << refused.errors;
  // Killed without a chance to clean up: its lock is void, and the next run says so.
  ::kill(holder, SIGKILL);
  EXPECT_EQ(testing::wait_for_driver(holder, first).signal, SIGKILL);
  ASSERT_TRUE(std::filesystem::exists(first.model_dir / "LOCK"));
  const Ended next = run_driver(second);
  EXPECT_EQ(next.code, 0) << next.errors;
  EXPECT_NE(next.errors.find(fmt::format("pid {} ", holder)), std::string::npos) << next.errors;
  EXPECT_FALSE(std::filesystem::exists(first.model_dir / "LOCK"))
      << "a run that ends well tidies up";
}

TEST(SecondRun, IsRefusedInTheSameProcessToo) {
  const FaultFolder folder;
  const FolderLock lock(folder.path());
  error_of(ExitCode::kUsage, [&] { const FolderLock second(folder.path()); });
}

// The winner of a simultaneous start clears the folder, so nothing of a loser may lie there.
TEST(SecondRun, IsRefusedBeforeItWritesAnything) {
  const FaultFolder folder;
  const FolderLock lock(folder.path());
  // Were it to probe the folder, it would meet this.
  for (const std::string& probe :
       {fmt::format(".writable-{}", ::getpid()), std::string(".writable-LOCK")})
    std::filesystem::create_directories(folder.path() / probe / "not empty");
  error_of(ExitCode::kUsage, [&] { const FolderLock second(folder.path()); });
}

TEST(SecondRun, OfManyAtOnceExactlyOneStarts) {
  const FaultFolder folder;
  std::atomic<int> started{0}, refused{0};
  std::atomic<bool> go{false}, over{false};
  std::vector<std::thread> runs;
  for (int i = 0; i < 8; ++i)
    runs.emplace_back([&] {
      while (!go) std::this_thread::yield();
      try {
        const FolderLock lock(folder.path());
        ++started;
        EXPECT_TRUE(testing::wait_for([&] { return over.load(); }));
      } catch (const Error&) {
        ++refused;
      }
    });
  go = true;
  EXPECT_TRUE(testing::wait_for([&] { return started + refused == 8; }));
  over = true;
  for (std::thread& run : runs) run.join();
  EXPECT_EQ(started, 1);
  EXPECT_EQ(refused, 7);
}

/// Whether the driver (not the fork of this process that becomes it) has the lock file open.
bool has_lock_open(pid_t pid) {
  std::error_code error;
  if (std::filesystem::read_symlink(fmt::format("/proc/{}/exe", pid), error) !=
      std::filesystem::canonical(QUINTET_CHECKPOINT_DRIVER))
    return false;
  for (const auto& entry :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid), error))
    if (std::filesystem::read_symlink(entry.path(), error).filename() == "LOCK") return true;
  return false;
}

TEST(SecondRun, DoesNotTakeALockFileThatWasRemovedMeanwhile) {
  const FaultFolder folder;
  const Launch second{.model_dir = folder.path() / "run", .fault = "flock:1=SLEEP1500"};
  auto first = std::make_unique<FolderLock>(second.model_dir);
  const pid_t pid = testing::start_driver(second);
  ASSERT_TRUE(testing::wait_for(
      [&] { return has_lock_open(pid); }));  // it is about to lock the first run's file
  first.reset();                             // which goes
  const FolderLock third(second.model_dir);
  const Ended ended = testing::wait_for_driver(pid, second);
  EXPECT_EQ(ended.code, 2) << "two runs at once: " << ended.errors;
}

TEST(SecondRun, LocksByTheTextWhereTheFileSystemHasNoLocks) {
  const FaultFolder folder;
  Launch launch{.model_dir = testing::prepared(folder.path(), "run"), .fault = "flock:1+=ENOLCK"};
  EXPECT_EQ(run_driver(launch).code, 0);
  const auto file = launch.model_dir / "LOCK";
  char host[256] = "";
  ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
  struct Case {
    std::string holder;
    int code;
  };
  for (const Case& c : {Case{fmt::format("host {} pid {} started x\n", host, ::getpid()), 2},
                        Case{fmt::format("host {} pid 99999999 started x\n", host), 0},
                        Case{"host somewhere-else pid 99999999 started x\n", 2}}) {
    testing::write_bytes(file, c.holder);
    const Ended ended = run_driver(launch);
    EXPECT_EQ(ended.code, c.code) << c.holder << ended.errors;
  }
}

TEST(ModelDir, ThatCannotBeWrittenIsRefusedAtTheStart) {
  const FaultFolder folder;
  testing::write_bytes(folder.path() / "file", "x");
  for (const auto& path : {folder.path() / "file", folder.path() / "file/below",
                           std::filesystem::path("/proc/quintet")}) {
    const std::string message = error_of(ExitCode::kDisk, [&] { FolderLock lock(path); });
    EXPECT_NE(message.find(path.string()), std::string::npos) << message;
  }
  for (const char* error : {"EROFS", "EACCES", "EIO", "ESTALE", "ENOSPC"})
    for (const char* call :
         {"open:1", "fallocate:1", "write:1", "fsync:1", "rename:1", "fsync:2"}) {
      const Launch launch{.model_dir = testing::prepared(folder.path(), "run"),
                          .fault = fmt::format("{}={}", call, error)};
      const Ended ended = run_driver(launch);
      EXPECT_EQ(ended.code, 5) << launch.fault << ended.errors;
      EXPECT_TRUE(ended.lines.empty()) << "work had begun: " << ended.lines[0];
      EXPECT_NE(ended.errors.find(launch.model_dir.string()), std::string::npos) << ended.errors;
    }
}

TEST(ModelDir, WithoutPermissionIsRefusedAtTheStart) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else";
  const FaultFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  Launch launch{.model_dir = testing::prepared(folder.path(), "run")};
  launch.in_child = [] {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(96);
  };
  const Ended ended = run_driver(launch);
  EXPECT_EQ(ended.code, 5) << ended.errors;
  EXPECT_NE(ended.errors.find("Permission denied; check the permissions"), std::string::npos)
      << ended.errors;
}

TEST(AtomicFile, LeavesDevicesAndPipesAlone) {
  const testing::Scratch scratch;
  const std::filesystem::path pipe = scratch.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(atomic_write_file(pipe, "text"), Error);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST(AtomicFile, IsOldOrNewWhateverFails) {
  const testing::Scratch scratch;
  const auto file = scratch.path() / "config.gin";
  atomic_write_file(file, "old");
  atomic_write_file(file, "new and longer");
  EXPECT_EQ(read_file(file), "new and longer");
  atomic_write_file(file, "");
  EXPECT_EQ(read_file(file), "");
  error_of(ExitCode::kDisk, [&] { atomic_write_file(scratch.path() / "no/such/file", "x"); });
  std::filesystem::create_directory(scratch.path() / "folder");
  error_of(ExitCode::kDisk, [&] { atomic_write_file(scratch.path() / "folder", "x"); });
  size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(scratch.path()))
    ++entries;
  EXPECT_EQ(entries, 2u) << "a failed write left its temporary file";
}

}  // namespace
}  // namespace quintet
