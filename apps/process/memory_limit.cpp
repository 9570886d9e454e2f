#include "apps/process/memory_limit.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <limits>
#include <new>

#include "runtime/base/check.h"

namespace quintet {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr size_t kStackBytes = 1 << 20;  // of the main thread; the rest of it is mapped as it grows

struct Limit {
  int resource;
  const char* name;     // of the shell's command
  const char* counted;  // in /proc/self/status
};
constexpr std::array kLimits = {Limit{RLIMIT_AS, "ulimit -v", "VmSize:"},
                                Limit{RLIMIT_DATA, "ulimit -d", "VmData:"}};

rlim_t value_of(const Limit& limit) {
  rlimit value{};
  const bool known = ::getrlimit(static_cast<__rlimit_resource>(limit.resource), &value) == 0;
  return known ? value.rlim_cur : RLIM_INFINITY;
}

int64_t bytes_now(const Limit& limit) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(limit.counted))
      return std::stoll(line.substr(std::strlen(limit.counted))) * 1024;
  return 0;
}

[[gnu::noinline]] void touch_stack() {
  char pages[kStackBytes];
  std::memset(pages, 0, sizeof(pages));
  asm volatile("" : : "r"(pages) : "memory");  // it is used, the compiler is told
}

void on_stack_refused(int) {
  constexpr char kMessage[] =
      "error: the limit of memory (ulimit -v, -d) leaves no room for the program's stack; raise "
      "it\n";
  (void)!write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(static_cast<int>(ExitCode::kEnvironment));
}

/// Maps the main thread's stack. What is refused there, the kernel tells by SIGSEGV alone.
void grow_stack() {
  static std::array<char, size_t{1} << 16> handlers_stack;
  stack_t stack{}, stack_before{};
  stack.ss_sp = handlers_stack.data();
  stack.ss_size = handlers_stack.size();
  struct sigaction refused = {}, before = {};
  refused.sa_handler = on_stack_refused;
  refused.sa_flags = SA_ONSTACK;
  ::sigaltstack(&stack, &stack_before);
  ::sigaction(SIGSEGV, &refused, &before);
  touch_stack();
  ::sigaction(SIGSEGV, &before, nullptr);
  ::sigaltstack(&stack_before, nullptr);
}

/// Of an exception that nobody caught: in a thread, or in a parallel region.
[[noreturn]] void on_terminate() {
  try {
    if (std::current_exception() != nullptr) throw;
  } catch (const std::bad_alloc&) {
    constexpr char kMessage[] = "error: out of memory, in a thread or before the program began\n";
    (void)!write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
    _exit(static_cast<int>(ExitCode::kEnvironment));
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    _exit(static_cast<int>(error.code()));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s (this is a bug of quintet)\n", error.what());
  } catch (...) {
  }
  std::abort();
}

}  // namespace

bool memory_is_limited() {
  for (const Limit& limit : kLimits)
    if (value_of(limit) != RLIM_INFINITY) return true;
  return false;
}

int64_t memory_left() {
  int64_t left = std::numeric_limits<int64_t>::max();
  for (const Limit& limit : kLimits)
    if (value_of(limit) != RLIM_INFINITY)
      left = std::min(left, static_cast<int64_t>(value_of(limit)) - bytes_now(limit));
  return left;
}

void report_uncaught_exceptions() { std::set_terminate(on_terminate); }

void prepare_memory() {
  if (!memory_is_limited()) return;
  ::mallopt(M_ARENA_MAX, 1);
  grow_stack();
}

int64_t resident_bytes() {
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t bytes_of_stacks(int64_t count) {
  pthread_attr_t attributes;
  size_t bytes = 0;
  if (::pthread_getattr_default_np(&attributes) != 0) return 0;
  ::pthread_attr_getstacksize(&attributes, &bytes);
  ::pthread_attr_destroy(&attributes);
  return count * static_cast<int64_t>(bytes + 4096);
}

void require_memory(const MemoryNeed& need, const std::string& work) {
  for (const Limit& limit : kLimits) {
    const rlim_t most = value_of(limit);
    const int64_t now = bytes_now(limit), wanted = now + need.bytes();
    if (most == RLIM_INFINITY || static_cast<rlim_t>(wanted) <= most) continue;
    fail(ExitCode::kEnvironment,
         "{} needs up to {} MiB (the program {}, tensors {}, saving {}, stacks of threads {}, "
         "libraries {}) and the limit ({}) is {} MiB; raise it, or use a smaller batch, more "
         "microbatches, shorter lengths, fewer threads or a smaller stack (ulimit -s)",
         work, (wanted + kMiB - 1) / kMiB, now / kMiB, need.tensors / kMiB, need.saving / kMiB,
         need.threads / kMiB, need.libraries / kMiB, limit.name, most / kMiB);
  }
}

}  // namespace quintet
