#pragma once
// Lines on stderr. Whoever read them may have gone, which must stop nothing: fmt::print would
// throw.

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstdio>
#include <ctime>
#include <exception>

namespace quintet::serve {

template <class... Args>
void log_line(fmt::format_string<Args...> text, Args&&... args) {
  std::fputs(fmt::format(text, std::forward<Args>(args)...).c_str(), stderr);
}

/// The same with the time (UTC).
template <class... Args>
void log_request(fmt::format_string<Args...> text, Args&&... args) {
  log_line("{:%Y-%m-%dT%H:%M:%SZ} {}", fmt::gmtime(std::time(nullptr)),
           fmt::format(text, std::forward<Args>(args)...));
}

/// For threads whose tasks have nobody else to tell.
inline void log_failure(const std::exception& error) { log_line("serve: {}\n", error.what()); }

}  // namespace quintet::serve
