#include "apps/process/signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "runtime/base/clock.h"
#include "runtime/base/stacks.h"
#include "runtime/base/thread.h"

namespace quintet {
namespace {

std::atomic<int> g_received = 0;  // what a handler may touch is global by nature; others read it
static_assert(std::atomic<int>::is_always_lock_free);
std::array<struct sigaction, kStopSignals.size()> g_former;

const char* name_of_signal(int number) {
  switch (number) {
    case SIGINT:
      return "SIGINT (Ctrl-C)";
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGHUP:
      return "SIGHUP (the terminal is gone)";
    default:
      return "SIGXCPU (ulimit -t is used up)";
  }
}

/// Sent more than once for one reason, or before another: by a shell and by its terminal, every
/// second beyond a limit, by systemd with SIGTERM.
bool is_repeated(int number) { return number == SIGHUP || number == SIGXCPU; }

void on_signal(int number) {
  const int saved = errno;  // of whatever this interrupts
  if (g_received != 0 && is_repeated(number)) return;
  if (g_received != 0 && !is_repeated(g_received)) {
    constexpr char kMessage[] = "\nsecond signal: quitting without saving\n";
    (void)!write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
    _exit(128 + number);
  }
  g_received = number;
  constexpr char kMessage[] =
      "\nstopping: finishing what was begun and saving; again to quit at once\n";
  (void)!write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  errno = saved;
}

}  // namespace

void start_signal_thread() {
  sigset_t sent;  // by others; what a thread brings upon itself stays its own
  sigfillset(&sent);
  for (const int own :
       {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPIPE, kStackSignal})
    sigdelset(&sent, own);
  pthread_sigmask(SIG_BLOCK, &sent, nullptr);
  start_thread("to receive signals", [sent] {
    pthread_setname_np(pthread_self(), "signals");
    pthread_sigmask(SIG_UNBLOCK, &sent, nullptr);
    for (;;) pause();
  }).detach();
}

bool stop_signalled() { return g_received != 0; }

StopRequests::StopRequests(std::filesystem::path model_dir)
    : stop_file_(model_dir.empty() ? model_dir : model_dir / "STOP") {
  g_received = 0;
  struct sigaction action;
  std::memset(&action, 0, sizeof(action));
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // a write that is under way is not disturbed
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kStopSignals.size(); ++i) {
    sigaction(kStopSignals[i], nullptr, &g_former[i]);
    const bool of_nohup = kStopSignals[i] == SIGHUP && g_former[i].sa_handler == SIG_IGN;
    if (!of_nohup) sigaction(kStopSignals[i], &action, nullptr);
  }
}

StopRequests::~StopRequests() {
  for (size_t i = 0; i < kStopSignals.size(); ++i)
    sigaction(kStopSignals[i], &g_former[i], nullptr);
  // What follows the first one must not kill the process, whose work is saved, on its way to exit 75.
  if (is_repeated(g_received))
    for (const int following : {SIGHUP, SIGXCPU, SIGTERM}) signal(following, SIG_IGN);
}

std::optional<std::string> StopRequests::reason() {
  if (g_received != 0) return name_of_signal(g_received);
  const double now = now_seconds();
  if (!stop_file_.empty() && (looked_at_ < 0 || now - looked_at_ > 0.2)) {
    looked_at_ = now;
    std::error_code ignored;
    file_seen_ = std::filesystem::exists(stop_file_, ignored);
  }
  if (file_seen_) return "the file " + stop_file_.string();
  return std::nullopt;
}

void StopRequests::clear_stop_file() const {
  std::error_code ignored;
  if (!stop_file_.empty()) std::filesystem::remove(stop_file_, ignored);
}

}  // namespace quintet
