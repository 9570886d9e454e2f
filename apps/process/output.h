#pragma once
// Standard output and standard error of the process. Results go to stdout and are written to the
// last byte or the process ends with exit code 5; words for people go to stderr, and whoever read
// them may leave.
//
//   prepare_output();                 // first in main
//   fmt::print("{}\n", result);       // throws where nothing can be written
//   flush_output();                   // what was printed has left the process, or OutputError
//   close_output();                   // last: nothing was lost on the way, or OutputError

#include <system_error>

namespace quintet {

/// Results that did not reach stdout; code() is the system's reason.
class OutputError : public std::system_error {
 public:
  explicit OutputError(int error) : std::system_error(error, std::generic_category(), "stdout") {}
};

/// Descriptors 0 to 2 that are closed get a place holder (a file opened later must not take
/// theirs), SIGPIPE becomes an error of the write that meets it, and stderr drops what nobody can
/// read.
void prepare_output();

/// Throws OutputError if anything printed so far cannot be written.
void flush_output();

/// The same, and closes: some file systems tell only then. Nothing may be printed afterwards.
void close_output();

/// Whether an exception comes from stdout: OutputError, or what fmt::print threw.
bool is_output_error(const std::system_error& error);

/// What to do about results that did not reach stdout: throws kDisk naming stdout and the reason. A
/// reader that went away (`| head`) is no news: the process ends by SIGPIPE, as others do, unless
/// its parent has that signal ignored.
[[noreturn]] void fail_output(const std::system_error& error);

}  // namespace quintet
