#include "apps/library/worker.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/process/spawn.h"

namespace quintet::library {
namespace {

constexpr std::string_view kError = "error: ";
constexpr int kPipeBytes = 1 << 20;  // the most that a user may ask for

void close_and_forget(int& file) {
  if (file >= 0) ::close(file);
  file = -1;
}

void check_open(int result) {
  QT_CHECK_AS(ExitCode::kEnvironment, result == 0, "cannot open a pipe: {}", std::strerror(errno));
}

}  // namespace

std::string program_path() {
  if (const char* named = std::getenv("QUINTET_PROGRAM")) return named;
  Dl_info library{};
  if (dladdr(reinterpret_cast<void*>(&program_path), &library) != 0 && library.dli_fname) {
    std::error_code ignored;
    const auto folder = std::filesystem::weakly_canonical(library.dli_fname, ignored).parent_path();
    for (const char* place : {"quintet", "../bin/quintet", "../../bin/quintet"})
      if (std::filesystem::is_regular_file(folder / place, ignored)) return folder / place;
  }
  return "quintet";
}

Worker::Worker(std::vector<std::string> arguments) : owner_(getpid()), program_(program_path()) {
  arguments.insert(arguments.begin(), program_);
  // A socket, whose writer gets an error and no SIGPIPE.
  int in[2], out[2], err[2];
  check_open(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in));
  check_open(pipe2(out, O_CLOEXEC));
  check_open(pipe2(err, O_CLOEXEC));
  fcntl(out[0], F_SETPIPE_SZ, kPipeBytes);
  process_ = spawn(arguments, {in[0], out[1], err[1]});
  const int error = errno;
  for (const int theirs : {in[0], out[1], err[1]}) ::close(theirs);
  input_ = in[1];
  output_ = out[0];
  errors_ = err[0];
  fcntl(errors_, F_SETFL, O_NONBLOCK);
  if (process_ > 0) return;
  for (int* ours : {&input_, &output_, &errors_}) close_and_forget(*ours);
  fail(ExitCode::kEnvironment,
       "{}: cannot be started: {}; install quintet beside its library, or name the program in "
       "QUINTET_PROGRAM",
       program_, std::strerror(error));
}

Worker::~Worker() {
  close_and_forget(input_);
  close_and_forget(output_);
  if (is_ours() && process_ > 0) wait_for_end(2);
  close_and_forget(errors_);
}

bool Worker::is_ours() const { return getpid() == owner_; }

void Worker::check_process() const {
  QT_CHECK(is_ours(),
           "opened in process {}, not in {}, which was forked from it: open it anew here", owner_,
           getpid());
}

std::string Worker::greeting() {
  FrameHead head;
  if (!read_head(head, -1)) return "";
  std::string text(head.bytes, '\0');
  read_body(text.data(), text.size());
  const std::string version = nlohmann::json::parse(text).value("version", "none");
  QT_CHECK_AS(ExitCode::kEnvironment, version == QUINTET_VERSION,
              "{} is of version {}, its library of version {}: install both from one build, or "
              "name the program in QUINTET_PROGRAM",
              program_, version, QUINTET_VERSION);
  return text;
}

bool Worker::send(uint64_t request, int32_t status, std::string_view body) {
  return write_frame(input_, {.request = request, .status = status}, {body});
}

void Worker::end_input() { ::shutdown(input_, SHUT_RDWR); }

void Worker::kill() {
  if (const pid_t process = process_; process > 0) ::kill(-process, SIGKILL);
}

/// Sets its wait status; what has not ended then is made to.
void Worker::wait_for_end(double seconds) {
  int status = 0;
  pid_t ended = 0;
  for (double waited = 0; waited < seconds && ended == 0; waited += 0.01) {
    ended = waitpid(process_, &status, WNOHANG);
    if (ended == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (ended == 0) kill();
  while (ended == 0 || (ended < 0 && errno == EINTR)) ended = waitpid(process_, &status, 0);
  if (ended > 0) status_ = status;
  process_ = -1;
}

void Worker::read_errors() {
  std::array<char, 4096> bytes;
  for (ssize_t n; errors_ >= 0 && (n = read(errors_, bytes.data(), bytes.size())) >= 0;) {
    if (n == 0) close_and_forget(errors_);
    said_.append(bytes.data(), static_cast<size_t>(n));
    pass_on_errors();
  }
}

/// Whole lines before the error, which are warnings, are for whoever reads our stderr.
void Worker::pass_on_errors() {
  size_t line = 0;
  for (size_t end; (end = said_.find('\n', line)) != std::string::npos; line = end + 1)
    if (std::string_view(said_).substr(line).starts_with(kError)) break;
  std::fwrite(said_.data(), 1, line, stderr);
  said_.erase(0, line);
}

/// After its output has ended: throws what it says, unless it ended well.
void Worker::end() {
  if (process_ > 0) wait_for_end(2);
  read_errors();
  std::string said = said_;
  const bool has_error = said.starts_with(kError);
  const int status = status_.value_or(0);
  const int code = status_ && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (!has_error && (status_ ? code == 0 : finished_)) return void(done_ = true);
  if (has_error) said.erase(0, kError.size());
  while (said.ends_with('\n')) said.pop_back();
  if (code >= 1 && code <= 7 && !said.empty()) throw Error(static_cast<ExitCode>(code), said);
  if (!status_ && has_error) throw Error(ExitCode::kEnvironment, said);
  const std::string how =
      !status_ ? "ended, and why is unknown: this program waits for every child, or ignores SIGCHLD"
      : WIFSIGNALED(status) ? fmt::format("was ended by signal {} ({})", WTERMSIG(status),
                                          strsignal(WTERMSIG(status)))
                            : fmt::format("ended with exit status {}", code);
  fail(ExitCode::kEnvironment, "{} {}{}", program_, how, said.empty() ? "" : ": " + said);
}

bool Worker::read_head(FrameHead& head, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  while (!done_) {
    const double left = seconds - std::chrono::duration<double>(Clock::now() - began).count();
    std::array<pollfd, 2> files = {{{output_, POLLIN, 0}, {errors_, POLLIN, 0}}};
    const int ready = poll(files.data(), files.size(),
                           seconds < 0 ? -1 : static_cast<int>(std::clamp(1000 * left, 0.0, 1e9)));
    if (files[1].revents != 0) read_errors();
    if (files[0].revents != 0) {
      if (!quintet::read_head(output_, head))
        end();
      else if (head.request == 0 && head.bytes == 0)
        finished_ = true;
      else
        return true;
    } else if (ready == 0 && seconds >= 0) {
      return false;
    }
  }
  return false;
}

}  // namespace quintet::library
