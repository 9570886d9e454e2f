#pragma once
// Other programs as processes of their own.

#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

namespace quintet {

/// Starts `command`, its first word found along PATH, with these files as its standard input, output and error. It leads
/// a session and a group of its own, so that Ctrl-C here and who kills this program's group pass it by; signals are
/// as a new process has them, whatever the caller blocks or ignores. The process, or -1 and errno.
pid_t spawn(const std::vector<std::string>& command, const std::array<int, 3>& files);

}  // namespace quintet
