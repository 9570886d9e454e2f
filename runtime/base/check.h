#pragma once
// Errors. Mistakes of the user (configuration, data, machine) are exceptions of type Error that carry
// the exit code of the process; mistakes of ours are QT_ASSERT.
//
//   QT_CHECK(rate < 1, "dropout: rate {} must be below 1", rate);
//   QT_CHECK_AS(ExitCode::kData, file.ok(), "{}: cannot open: {}; check the path", path, reason);
//
// A message names the flag, file or tensor, what was expected, what was found and what to do.

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace quintet {

/// Exit codes of the `quintet` command (docs/reference/exit-codes.md).
enum class ExitCode {
  kDone = 0,
  kBug = 1,
  kUsage = 2,
  kData = 3,
  kEnvironment = 4,
  kDisk = 5,
  kPeer = 6,
  kNonFinite = 7,
  kSavedRunAgain = 75,
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// A broken invariant of our own: ends the process with exit code 1.
class Bug : public Error {
 public:
  explicit Bug(const std::string& message) : Error(ExitCode::kBug, message) {}
};

template <typename... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace quintet

#define QT_CHECK_AS(code, condition, ...)                   \
  do {                                                      \
    if (!(condition)) ::quintet::fail((code), __VA_ARGS__); \
  } while (false)

#define QT_CHECK(condition, ...) QT_CHECK_AS(::quintet::ExitCode::kUsage, condition, __VA_ARGS__)

#define QT_ASSERT(condition)                                                           \
  do {                                                                                 \
    if (!(condition))                                                                  \
      throw ::quintet::Bug(                                                            \
          fmt::format("{}:{}: broken invariant: {}", __FILE__, __LINE__, #condition)); \
  } while (false)
