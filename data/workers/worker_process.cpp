#include "data/workers/worker_process.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/process/spawn.h"

namespace quintet::data {
namespace {

constexpr size_t kKeptErrors = 2000;  // bytes of stderr that messages quote
constexpr int64_t kLongestAnswer = int64_t{1} << 30;

struct Pipe {
  Pipe() {
    int ends[2];
    QT_CHECK_AS(ExitCode::kEnvironment, pipe2(ends, O_CLOEXEC) == 0, "cannot open a pipe: {}",
                std::strerror(errno));
    read = ends[0];
    write = ends[1];
  }
  int read, write;
};

void close_and_forget(int& file) {
  if (file >= 0) close(file);
  file = -1;
}

}  // namespace

std::string worker_name(const std::vector<std::string>& command) {
  return fmt::format("worker process '{}'", fmt::join(command, " "));
}

WorkerProcess::WorkerProcess(const std::vector<std::string>& command)
    : name_(worker_name(command)) {
  const Pipe in, out, err;
  process_ = spawn(command, {in.read, out.write, err.write});
  const int error = errno;
  for (const int theirs : {in.read, out.write, err.write}) close(theirs);
  input_ = in.write;
  output_ = out.read;
  errors_ = err.read;
  for (const int ours : {input_, errors_}) fcntl(ours, F_SETFL, O_NONBLOCK);
  if (process_ > 0) return;
  for (int* ours : {&input_, &output_, &errors_}) close_and_forget(*ours);
  fail(ExitCode::kEnvironment, "{}: cannot be started: {}", name_, std::strerror(error));
}

WorkerProcess::~WorkerProcess() {
  close_and_forget(input_);
  for (int i = 0; process_ > 0 && i < 200; ++i) {
    if (waitpid(process_, nullptr, WNOHANG) != 0) process_ = -1;
    if (process_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  read_errors();
  kill_and_wait();
  close_and_forget(output_);
  close_and_forget(errors_);
}

void WorkerProcess::kill_and_wait() {
  if (process_ <= 0) return;
  kill(-process_, SIGKILL);  // and what it has started
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
}

void WorkerProcess::read_errors() {
  std::array<char, 4096> bytes;
  for (ssize_t n; (n = read(errors_, bytes.data(), bytes.size())) >= 0;) {
    if (n == 0) return close_and_forget(errors_);
    std::fwrite(bytes.data(), 1, static_cast<size_t>(n), stderr);
    last_errors_.append(bytes.data(), static_cast<size_t>(n));
    if (last_errors_.size() > 2 * kKeptErrors)
      last_errors_.erase(0, last_errors_.size() - kKeptErrors);
  }
}

std::string WorkerProcess::how_it_ended() {
  int status = 0;
  // Whoever closes its output ends, or is made to.
  for (int i = 0; i < 100 && waitpid(process_, &status, WNOHANG) == 0; ++i) {
    if (i == 99) return "has closed its output";
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  process_ = -1;
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  return fmt::format("ended with exit status {}", WEXITSTATUS(status));
}

std::string WorkerProcess::last_errors() {
  read_errors();
  std::string said = last_errors_;
  if (said.size() > kKeptErrors) said.erase(0, said.size() - kKeptErrors);
  while (!said.empty() && said.back() == '\n') said.pop_back();
  return "its stderr: " + (said.empty() ? "nothing" : "\n" + said);
}

void WorkerProcess::fail_with(const std::string& what) {
  kill_and_wait();
  fail(ExitCode::kData, "{} {}; {}", name_, what, last_errors());
}

std::string WorkerProcess::ask(std::string_view line, std::string_view following, double seconds) {
  QT_CHECK_AS(ExitCode::kData, !ended(), "{} has ended", name_);
  unsent_ = fmt::format("{}\n{}", line, following);
  began_ = Clock::now();
  seconds_ = seconds;
  size_t end = 0;
  exchange_until([&] { return (end = answers_.find('\n')) != std::string::npos; });
  std::string answer = read_bytes(static_cast<int64_t>(end) + 1);
  answer.pop_back();
  return answer;
}

std::string WorkerProcess::read_bytes(int64_t size) {
  if (size < 0 || size > kLongestAnswer)
    fail_with(fmt::format("announces {} bytes, expected 0 to 1 GiB", size));
  exchange_until([&] { return std::ssize(answers_) >= size; });
  std::string bytes = answers_.substr(0, static_cast<size_t>(size));
  answers_.erase(0, static_cast<size_t>(size));
  return bytes;
}

void WorkerProcess::check_all_read() {
  if (!answers_.empty())
    fail_with(fmt::format("wrote more than its answer: '{}'", answers_.substr(0, 200)));
}

void WorkerProcess::exchange_until(const std::function<bool()>& done) {
  while (!unsent_.empty() || !done()) {
    const double rest = seconds_ - seconds_since(began_);
    if (rest <= 0)
      fail_with(fmt::format(
          "gave no answer within {} seconds{}", seconds_,
          answers_.empty() ? "" : fmt::format(", {} bytes of a part of one", answers_.size())));
    if (std::ssize(answers_) > kLongestAnswer) fail_with("writes an answer of more than 1 GiB");
    exchange(rest);
  }
}

/// Writes what can be written and reads what is there.
void WorkerProcess::exchange(double seconds) {
  std::array<pollfd, 3> files = {pollfd{unsent_.empty() ? -1 : input_, POLLOUT, 0},
                                 pollfd{output_, POLLIN, 0}, pollfd{errors_, POLLIN, 0}};
  if (poll(files.data(), files.size(), static_cast<int>(1000 * std::min(seconds, 3600.0)) + 1) < 0)
    return;  // a signal
  if (files[0].revents != 0) {
    const ssize_t n = write(input_, unsent_.data(), unsent_.size());
    if (n > 0) unsent_.erase(0, static_cast<size_t>(n));
    if (n < 0 && errno != EAGAIN) fail_with(how_it_ended());
  }
  if (files[2].revents != 0) read_errors();
  if (files[1].revents == 0) return;
  std::array<char, 65536> bytes;
  const ssize_t n = read(output_, bytes.data(), bytes.size());
  if (n == 0) fail_with(how_it_ended());
  if (n > 0) answers_.append(bytes.data(), static_cast<size_t>(n));
}

}  // namespace quintet::data
