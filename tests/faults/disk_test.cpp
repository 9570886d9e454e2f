// Disks that fill up, limits, slow and failing disks in a run (fault rows C4, C10, C11).

#include <sched.h>
#include <sys/mount.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/faults/run_driver.h"

namespace quintet {
namespace {

using testing::Ended;
using testing::FaultFolder;
using testing::Launch;
using testing::run_driver;

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(FullDisk, TheThirdFailureInARowEndsTheRunAndTheOldStepsStay) {
  const FaultFolder folder;
  const Launch launch{.model_dir = testing::prepared(folder.path(), "run"),
                      .mode = "async",
                      .steps = 8,
                      .fault = "fallocate:3+=ENOSPC"};  // the probe and config.gin come first
  const Ended ended = run_driver(launch);
  EXPECT_EQ(ended.code, 5);
  EXPECT_EQ(count_of(ended.errors, "warning: a checkpoint could not be saved"), 2u) << ended.errors;
  for (const char* part : {"3 saves in a row failed", ".tmp-checkpoint_5/data-00000-of-00001.h5",
                           " bytes needed, ", " bytes free", "No space left on device"})
    EXPECT_NE(ended.errors.find(part), std::string::npos) << part << "\n" << ended.errors;
  for (const auto& entry : std::filesystem::directory_iterator(launch.model_dir))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp")) << "left: " << entry.path();
  EXPECT_LE(ended.lines.size(), 6u)
      << "it went on: " << fmt::format("{}", fmt::join(ended.lines, " "));
  testing::expect_sound(launch.model_dir, 2);
}

TEST(FullDisk, OneFailureIsAWarningAndTheRunGoesOn) {
  const FaultFolder folder;
  const Launch launch{.model_dir = testing::prepared(folder.path(), "run"),
                      .mode = "async",
                      .steps = 4,
                      .fault = "fallocate:3=EDQUOT"};
  const Ended ended = run_driver(launch);
  EXPECT_EQ(ended.code, 0) << ended.errors;
  EXPECT_EQ(count_of(ended.errors, "warning: "), 1u) << ended.errors;
  testing::expect_sound(launch.model_dir, 6);
}

TEST(FullDisk, AFailedLastSaveIsNeverExitCodeZero) {
  const FaultFolder folder;
  for (const char* mode : {"sync", "async"})
    for (const char* call :
         {"fallocate:3=ENOSPC", "fsync:5=EIO", "rename:3=EIO", "mkdir:1=EDQUOT"}) {
      SCOPED_TRACE(fmt::format("{} {}", mode, call));
      const Launch launch{.model_dir = testing::prepared(folder.path(), "run"),
                          .mode = mode,
                          .steps = 1,
                          .fault = call};
      const Ended ended = run_driver(launch);
      EXPECT_EQ(ended.signal, 0);
      EXPECT_EQ(ended.code, 5) << ended.errors;
      testing::expect_sound(launch.model_dir, 2);
    }
}

TEST(FullDisk, WithoutReservationWritesThatFailAreReported) {
  // A file system that cannot reserve, and then is full: the library itself meets the error.
  const FaultFolder folder;
  for (int n = 1; n <= 40; ++n) {
    SCOPED_TRACE(n);
    const Launch launch{.model_dir = testing::prepared(folder.path(), "run"),
                        .steps = 1,
                        .fault = fmt::format("write:{}+=ENOSPC", n)};
    const Ended ended = run_driver(launch);
    EXPECT_EQ(ended.signal, 0);
    EXPECT_TRUE(ended.code == 5 || ended.committed(2) == 3) << ended.code << ended.errors;
    testing::expect_sound(launch.model_dir, 2);
  }
  const Launch launch{.model_dir = testing::prepared(folder.path(), "run"),
                      .fault = "fallocate:1+=EOPNOTSUPP"};
  EXPECT_EQ(run_driver(launch).code, 0) << "not being able to reserve is no error";
}

TEST(FullDisk, AFileSizeLimitIsAnErrorNotASignal) {
  const FaultFolder folder;
  for (rlim_t limit = 1024; limit < 200'000; limit = limit * 3 / 2) {
    SCOPED_TRACE(limit);
    Launch launch{.model_dir = testing::prepared(folder.path(), "run"), .steps = 1};
    launch.in_child = [limit] {
      const rlimit value{limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &value);
    };
    const Ended ended = run_driver(launch);
    EXPECT_EQ(ended.signal, 0);
    EXPECT_TRUE(ended.code == 5 || ended.committed(2) == 3) << ended.code << ended.errors;
    testing::expect_sound(launch.model_dir, 2);
  }
}

/// A private mount name space for this process; false where that is not allowed.
bool may_mount() {
  static const bool allowed = ::unshare(CLONE_NEWNS) == 0 &&
                              ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  return allowed;
}

TEST(FullDisk, ATinyFileSystemOfAnySizeNeverCrashesTheRun) {
  if (!may_mount()) GTEST_SKIP() << "mounting needs root";
  const FaultFolder folder;
  bool some_failed = false, some_passed = false;
  for (int kilobytes = 48; kilobytes <= 640; kilobytes += 16) {
    SCOPED_TRACE(kilobytes);
    const auto disk = folder.path() / "disk";
    std::filesystem::create_directories(disk);
    ASSERT_EQ(
        ::mount("tmpfs", disk.c_str(), "tmpfs", 0, fmt::format("size={}k", kilobytes).c_str()), 0);
    Launch launch{.model_dir = disk / "run", .steps = 4};
    // The driver's own output must not be what fills the disk.
    std::filesystem::create_symlink(folder.path() / "out", disk / "run.out");
    std::filesystem::create_symlink(folder.path() / "err", disk / "run.err");
    const Ended ended = run_driver(launch);
    EXPECT_EQ(ended.signal, 0) << ended.errors;
    EXPECT_TRUE(ended.code == 0 || ended.code == 5) << ended.code << ended.errors;
    some_failed = some_failed || ended.code == 5;
    some_passed = some_passed || ended.code == 0;
    for (const int64_t step : list_checkpoints(launch.model_dir))
      testing::check_state(read_checkpoint(checkpoint_path(launch.model_dir, step)));
    EXPECT_TRUE(ended.committed(0) == 0 || !list_checkpoints(launch.model_dir).empty());
    ASSERT_EQ(::umount2(disk.c_str(), MNT_DETACH), 0);
  }
  EXPECT_TRUE(some_failed && some_passed) << "the sizes must lie on both sides";
}

TEST(FullDisk, AFirstSaveThatFailsInTheBackgroundEndsTheRun) {
  const FaultFolder folder;
  const Launch launch{.model_dir = folder.path() / "run",
                      .mode = "async",
                      .steps = 1000,
                      .fault = "fallocate:3=ENOSPC"};  // the probe and config.gin come first
  const Ended ended = run_driver(launch);
  EXPECT_EQ(ended.code, 5) << ended.errors;
  EXPECT_EQ(ended.errors.find("warning"), std::string::npos) << ended.errors;
  EXPECT_TRUE(list_checkpoints(launch.model_dir).empty());
}

TEST(SlowDisk, TheNextSaveWaitsAndTheSameCopyIsUsedAgain) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer's own memory of each byte is beyond the bound";
#endif
  const FaultFolder folder;
  // The memory the process ever held, with a state of 64 MiB saved four times to a slow disk.
  const pid_t pid = ::fork();
  if (pid == 0) {
    class Slow : public HostGroup {
      bool all_ok(bool ok) override {
        std::this_thread::sleep_for(std::chrono::milliseconds(150));  // delay: a slow disk
        return ok;
      }
    };
    const HostArrays state{{"a", HostArray(DType::f32, {1 << 24})}};
    rusage before{}, after{};
    ::getrusage(RUSAGE_SELF, &before);
    const FolderLock lock(folder.path() / "run");
    CheckpointManager manager(lock, {.hosts = std::make_shared<Slow>()});
    for (int step = 1; step <= 4; ++step) {
      manager.save_async(step, {whole_slice("a", state.at("a"))}, "{}");
      if (step > 1 && manager.last_timing().stall_seconds < 0.1) ::_exit(3);  // it did not wait
    }
    manager.finish();
    ::getrusage(RUSAGE_SELF, &after);
    const long grown = after.ru_maxrss - before.ru_maxrss;  // KiB
    ::_exit(manager.latest_step() != 4 ? 4 : grown > 64 * 1024 + 24 * 1024 ? 5 : 0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "3: no waiting, 4: a save is lost, 5: more than one copy";
}

}  // namespace
}  // namespace quintet
