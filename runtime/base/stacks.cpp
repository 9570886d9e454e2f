#include "runtime/base/stacks.h"

#include <execinfo.h>
#include <fmt/format.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

namespace quintet {
namespace {

constexpr int kMostFrames = 64, kOwnFrames = 2;  // the handler, and what the kernel calls it by
constexpr time_t kSeconds = 1;                   // that a thread has to answer
sem_t g_printed;                                 // a handler knows globals alone

void on_stack_signal(int) {
  const int saved = errno;
  std::array<void*, kMostFrames> frames{};
  const int count = backtrace(frames.data(), kMostFrames);
  if (count > kOwnFrames)
    backtrace_symbols_fd(frames.data() + kOwnFrames, count - kOwnFrames, STDERR_FILENO);
  sem_post(&g_printed);
  errno = saved;
}

void write_line(const std::string& text) { (void)!write(STDERR_FILENO, text.data(), text.size()); }

bool answers(pid_t thread) {
  if (syscall(SYS_tgkill, getpid(), thread, kStackSignal) != 0) return false;
  timespec end{};
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += kSeconds;
  while (sem_timedwait(&g_printed, &end) != 0)
    if (errno != EINTR) return false;
  return true;
}

}  // namespace

void handle_stack_signal() {
  static const int ready = sem_init(&g_printed, 0, 0);
  if (ready != 0) return;
  std::array<void*, 1> frame{};
  backtrace(frame.data(), 1);  // loads what it needs, which a handler must not
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_handler = on_stack_signal;
  action.sa_flags = SA_RESTART;  // whoever is interrupted goes on
  sigemptyset(&action.sa_mask);
  sigaction(kStackSignal, &action, nullptr);
}

void print_stacks(const std::string& whose) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::string name;
    std::ifstream comm(entry.path() / "comm");
    std::getline(comm, name);
    write_line(fmt::format("stack of thread {} ({}) of {}:\n", entry.path().filename().string(),
                           name, whose));
    if (!answers(std::stoi(entry.path().filename().string()))) write_line("(it does not answer)\n");
  }
}

}  // namespace quintet
