#include "apps/process/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {
namespace {

bool g_dies_of_broken_pipe = true;  // as the parent process left SIGPIPE

/// For stderr: all of it is taken, whatever becomes of it.
ssize_t write_or_drop(void*, const char* text, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t put = ::write(STDERR_FILENO, text + done, size - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) break;
    done += static_cast<size_t>(put);
  }
  return static_cast<ssize_t>(size);
}

}  // namespace

void prepare_output() {
  // Read-only: writing to what was closed stays an error.
  for (int descriptor = 0; descriptor <= STDERR_FILENO; ++descriptor)
    if (::fcntl(descriptor, F_GETFD) < 0) (void)!::open("/dev/null", O_RDONLY);
  g_dies_of_broken_pipe = std::signal(SIGPIPE, SIG_IGN) != SIG_IGN;
  const cookie_io_functions_t functions = {
      .read = nullptr, .write = write_or_drop, .seek = nullptr, .close = nullptr};
  if (std::FILE* stream = ::fopencookie(nullptr, "w", functions)) {
    std::setvbuf(stream, nullptr, _IONBF, 0);
    stderr = stream;  // a variable, in the GNU C library
  }
}

void flush_output() {
  errno = 0;
  if (std::fflush(stdout) != 0) throw OutputError(errno);
  if (std::ferror(stdout) != 0) throw OutputError(errno != 0 ? errno : EIO);
}

void close_output() {
  flush_output();
  const int copy = ::dup(STDOUT_FILENO);  // stdout itself stays open for who writes at exit
  if (copy >= 0 && ::close(copy) != 0) throw OutputError(errno);
}

bool is_output_error(const std::system_error& error) {
  return dynamic_cast<const OutputError*>(&error) != nullptr || std::ferror(stdout) != 0;
}

void fail_output(const std::system_error& error) {
  const int reason = error.code().value();
  if (reason == EPIPE && g_dies_of_broken_pipe) {
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  fail(ExitCode::kDisk, "stdout: cannot write: {}; what was written is not all there is",
       std::strerror(reason));
}

}  // namespace quintet
