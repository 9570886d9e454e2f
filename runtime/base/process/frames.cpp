#include "runtime/base/process/frames.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/base/check.h"

namespace quintet {
namespace {

constexpr size_t kMostParts = 64;  // of one call; the system takes 1024

/// As much as the file takes at once; -1: nobody reads.
ssize_t write_some(int file, iovec* parts, size_t count) {
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  ssize_t wrote = sendmsg(file, &message, MSG_NOSIGNAL);
  if (wrote < 0 && errno == ENOTSOCK) wrote = writev(file, parts, static_cast<int>(count));
  if (wrote >= 0) return wrote;
  if (errno == EINTR) return 0;
  if (errno == EPIPE || errno == ECONNRESET) return -1;
  fail(ExitCode::kEnvironment, "cannot write to the other process: {}", std::strerror(errno));
}

/// Bytes read, fewer only at the end of the file.
size_t read_up_to(int file, void* to, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = read(file, static_cast<char*>(to) + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0 || (n < 0 && errno == ECONNRESET)) break;
    QT_CHECK_AS(ExitCode::kEnvironment, n > 0, "cannot read from the other process: {}",
                std::strerror(errno));
    done += static_cast<size_t>(n);
  }
  return done;
}

}  // namespace

bool write_frame(int file, FrameHead head, const std::vector<std::string_view>& parts) {
  head.bytes = 0;
  std::vector<iovec> left = {{&head, sizeof head}};
  for (const std::string_view part : parts) {
    head.bytes += part.size();
    if (!part.empty()) left.push_back({const_cast<char*>(part.data()), part.size()});
  }
  for (size_t at = 0; at < left.size();) {
    ssize_t wrote = write_some(file, &left[at], std::min(kMostParts, left.size() - at));
    if (wrote < 0) return false;
    for (; at < left.size() && static_cast<size_t>(wrote) >= left[at].iov_len; ++at)
      wrote -= static_cast<ssize_t>(left[at].iov_len);
    if (at == left.size()) break;
    left[at].iov_base = static_cast<char*>(left[at].iov_base) + wrote;
    left[at].iov_len -= static_cast<size_t>(wrote);
  }
  return true;
}

bool read_head(int file, FrameHead& head) {
  const uint32_t mark = FrameHead{}.mark;
  const size_t bytes = read_up_to(file, &head, sizeof head);
  if (bytes == 0) return false;
  QT_CHECK_AS(ExitCode::kEnvironment, bytes == sizeof head && head.mark == mark,
              "the other process does not speak as this one does; are both of one build?");
  return true;
}

void read_body(int file, void* to, size_t bytes) {
  QT_CHECK_AS(ExitCode::kEnvironment, read_up_to(file, to, bytes) == bytes,
              "the other process has ended in the middle of an answer");
}

}  // namespace quintet
