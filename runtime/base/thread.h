#pragma once
// Threads that may not be had: a limit of processes (ulimit -u, pids.max of a container) or of
// memory.
//
//   std::thread writer = start_thread("to save a checkpoint", [&] { write(); });

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace quintet {

/// Throws kEnvironment with the purpose, the system's reason and the limits that were met.
[[noreturn]] void fail_thread(std::string_view purpose, const std::system_error& error);

/// A thread that does `work`; throws kEnvironment where the system gives none.
template <class Work>
std::thread start_thread(std::string_view purpose, Work&& work) {
  try {
    return std::thread(std::forward<Work>(work));
  } catch (const std::system_error& error) {
    fail_thread(purpose, error);
  }
}

/// Throws kEnvironment unless `count` more threads can run at once, with stacks of `stack_bytes`
/// (0: the default). For a library that ends the process where they cannot.
void check_threads(std::string_view purpose, int count, size_t stack_bytes = 0);

}  // namespace quintet
