#pragma once
// Ends the process when an input blocks: what waits uses no processor time and is seen by the clock only.
//
//   const WallLimit limit(input, std::chrono::minutes(1));
//   read(input);

#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <string_view>

namespace quintet::testing {

/// While it lives, the time runs; one at a time. At its end the input's first 2,000 bytes go to stderr
/// and the process aborts. `input` must outlive it.
class WallLimit {
 public:
  WallLimit(const std::string& input, std::chrono::milliseconds limit) {
    running() = std::string_view(input).substr(0, 2000);
    std::signal(SIGALRM, give_up);
    set(limit);
  }
  ~WallLimit() { set(std::chrono::milliseconds(0)); }
  WallLimit(const WallLimit&) = delete;
  WallLimit& operator=(const WallLimit&) = delete;

 private:
  static std::string_view& running() {
    static std::string_view input;
    return input;
  }
  static void set(std::chrono::milliseconds limit) {
    const auto milliseconds = limit.count();
    const itimerval timer{.it_interval = {},
                          .it_value = {milliseconds / 1000, milliseconds % 1000 * 1000}};
    ::setitimer(ITIMER_REAL, &timer, nullptr);
  }
  static void say(std::string_view text) {
    if (::write(STDERR_FILENO, text.data(), text.size()) < 0) std::abort();
  }
  static void give_up(int) {  // only what a signal handler may call
    say("an input took longer than its limit of wall time:\n");
    say(running());
    say("\n");
    std::abort();
  }
};

}  // namespace quintet::testing
