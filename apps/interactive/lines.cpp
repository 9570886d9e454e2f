#include "apps/interactive/lines.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "runtime/base/check.h"

namespace quintet {
namespace {

class PlainLines final : public Lines {
 public:
  PlainLines(int descriptor, std::function<bool()> stop)
      : descriptor_(descriptor), is_terminal_(isatty(descriptor) != 0), stop_(std::move(stop)) {}

  Kind next(const char* prompt, std::string& line) override {
    if (is_terminal_) fmt::print(stderr, "{}", prompt);
    size_t end = 0;
    while ((end = buffer_.find('\n')) == std::string::npos && !ended_) {
      if (!wait_for_input(descriptor_, stop_)) {
        buffer_.clear();
        return Kind::cancelled;
      }
      fill();
    }
    if (end == std::string::npos && buffer_.empty()) return Kind::end;
    line = buffer_.substr(0, end);
    buffer_.erase(0, end == std::string::npos ? end : end + 1);
    if (line.ends_with('\r')) line.pop_back();
    return Kind::line;
  }

 private:
  void fill() {
    std::array<char, 1 << 16> some;
    const ssize_t count = read(descriptor_, some.data(), some.size());
    if (count < 0 && errno == EINTR) return;
    const bool is_gone = count < 0 && is_terminal_ && errno == EIO;
    QT_CHECK_AS(ExitCode::kData, count >= 0 || is_gone, "commands: cannot read all of them: {}",
                std::strerror(errno));
    if (count > 0) buffer_.append(some.data(), static_cast<size_t>(count));
    ended_ = count <= 0;
  }

  const int descriptor_;
  const bool is_terminal_;
  const std::function<bool()> stop_;
  std::string buffer_;
  bool ended_ = false;
};

}  // namespace

bool wait_for_input(int descriptor, const std::function<bool()>& stop) {
  constexpr int kMilliseconds = 20;  // signals reach a thread of their own, and do not interrupt
  pollfd input{.fd = descriptor, .events = POLLIN, .revents = 0};
  while (poll(&input, 1, kMilliseconds) <= 0)
    if (stop()) return false;
  return true;
}

std::unique_ptr<Lines> lines_of(int descriptor, const std::function<bool()>& stop) {
  if (descriptor == STDIN_FILENO && isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0)
    if (auto edited = edited_lines(stop)) return edited;
  return std::make_unique<PlainLines>(descriptor, stop);
}

}  // namespace quintet
