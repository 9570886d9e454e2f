#include "apps/process/signals.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/base/stacks.h"
#include "runtime/base/thread.h"
#include "runtime/mpi/launcher.h"

namespace quintet {
namespace {

std::atomic<int> g_received = 0;  // what a handler may touch is global by nature; others read it
static_assert(std::atomic<int>::is_always_lock_free);
std::array<struct sigaction, kStopSignals.size()> g_former;
std::atomic<pid_t> g_sender = 0;             // of the first signal
sem_t g_asked;                               // posted then
std::atomic<bool> g_stops_commands = false;  // Ctrl-C: StopRequests::let_interrupts_stop_commands()
std::atomic<bool> g_runs_command = false;    // StopRequests::Command

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

void on_signal(int number, siginfo_t* info, void*) {
  const int saved = errno;  // of whatever this interrupts
  const bool stops_command = g_stops_commands && g_received == SIGINT;  // and not the process
  if (g_received != 0 && is_repeated(number) && !stops_command) return;
  if (g_received != 0 && !is_repeated(g_received) && !stops_command) {
    constexpr char kMessage[] = "\nsecond signal: quitting without saving\n";
    (void)!write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
    _exit(128 + number);
  }
  g_received = number;
  g_sender = info->si_pid;
  sem_post(&g_asked);
  constexpr std::string_view kStops =
      "\nstopping: finishing what was begun and saving; again to quit at once\n";
  constexpr std::string_view kStopsCommand = "\nstopping the command after its step\n";
  const bool is_of_command = g_stops_commands && number == SIGINT;
  const std::string_view message = is_of_command ? kStopsCommand : kStops;
  if (!is_of_command || (g_runs_command && !stops_command))
    (void)!write(STDERR_FILENO, message.data(), message.size());
  errno = saved;
}

/// An mpirun that has passed its SIGTERM on would soon kill this rank.
void hold_launcher_while_saving() {
  constexpr std::chrono::minutes kMost(10);  // for a rank that hangs
  const pid_t sender = g_sender.exchange(0);
  if (!mpi::hold_launcher(sender)) return;
  std::this_thread::sleep_for(kMost);
  mpi::release_launcher();
}

}  // namespace

void start_signal_thread() {
  sigset_t sent;  // by others; what a thread brings upon itself stays its own
  sigfillset(&sent);
  for (const int own :
       {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPIPE, kStackSignal})
    sigdelset(&sent, own);
  pthread_sigmask(SIG_BLOCK, &sent, nullptr);
  sem_init(&g_asked, 0, 0);
  start_thread("to receive signals", [sent] {
    pthread_setname_np(pthread_self(), "signals");
    pthread_sigmask(SIG_UNBLOCK, &sent, nullptr);
    for (;;)
      if (sem_wait(&g_asked) == 0) hold_launcher_while_saving();
  }).detach();
}

bool stop_signalled() { return g_received != 0; }

StopRequests::StopRequests(std::filesystem::path model_dir)
    : stop_file_(model_dir.empty() ? model_dir : model_dir / "STOP") {
  g_received = 0;
  struct sigaction action;
  std::memset(&action, 0, sizeof(action));
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;  // a write that is under way is not disturbed
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
  g_sender = 0;
  g_stops_commands = false;
  mpi::release_launcher();
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

void StopRequests::let_interrupts_stop_commands() { g_stops_commands = true; }

StopRequests::Command::Command(StopRequests&) { g_runs_command = true; }

StopRequests::Command::~Command() { g_runs_command = false; }

bool StopRequests::take_interrupt() {
  int interrupt = SIGINT;
  if (!g_received.compare_exchange_strong(interrupt, 0)) return false;
  g_sender = 0;
  mpi::release_launcher();
  return true;
}

void StopRequests::clear_stop_file() const {
  std::error_code ignored;
  if (!stop_file_.empty()) std::filesystem::remove(stop_file_, ignored);
}

}  // namespace quintet
