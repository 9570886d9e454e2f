#pragma once
// Where every thread of this process is, on stderr: what a rank that keeps others waiting shows when they
// ask for it.
//
//   handle_stack_signal();            // early
//   print_stacks("rank 3 on hostb");

#include <csignal>
#include <string>

namespace quintet {

/// What threads are interrupted by; must not be blocked. Without a handler it is ignored.
inline constexpr int kStackSignal = SIGURG;

/// Makes threads answer kStackSignal for the rest of the process.
void handle_stack_signal();
/// A line "stack of THREAD (name) of `whose`" for each thread, and a line a frame: module(function+offset) [address]
/// where the module names its functions, else module(+offset), which `addr2line -Cfe MODULE OFFSET` resolves. Threads that
/// block the signal are named as such. By one thread at a time.
void print_stacks(const std::string& whose);

}  // namespace quintet
