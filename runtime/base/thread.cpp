#include "runtime/base/thread.h"

#include <pthread.h>
#include <sys/resource.h>

#include <filesystem>
#include <latch>
#include <string>
#include <vector>

#include "runtime/base/check.h"

namespace quintet {
namespace {

std::string limit_text(int resource, rlim_t unit) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY)
    return "unlimited";
  return std::to_string(limit.rlim_cur / unit);
}

int64_t threads_now() {
  std::error_code ignored;
  int64_t count = 0;
  for (std::filesystem::directory_iterator at("/proc/self/task", ignored), end;
       at != end && !ignored; at.increment(ignored))
    ++count;
  return count;
}

}  // namespace

void fail_thread(std::string_view purpose, const std::system_error& error) {
  fail(ExitCode::kEnvironment,
       "no thread can be had {}: {}; this process has {}. Raise the limit of processes (ulimit -u: "
       "{}, pids.max of a container) or of memory (ulimit -v: {} KiB), or stop other programs of "
       "this user",
       purpose, error.code().message(), threads_now(), limit_text(RLIMIT_NPROC, 1),
       limit_text(RLIMIT_AS, 1024));
}

void check_threads(std::string_view purpose, int count, size_t stack_bytes) {
  std::latch all_requested(1);
  const auto wait = [](void* latch) -> void* {
    static_cast<std::latch*>(latch)->wait();
    return nullptr;
  };
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (stack_bytes > 0) pthread_attr_setstacksize(&attributes, stack_bytes);
  std::vector<pthread_t> threads;
  threads.reserve(static_cast<size_t>(count));
  int failure = 0;
  for (int i = 0; i < count && failure == 0; ++i) {
    pthread_t thread;
    failure = pthread_create(&thread, &attributes, wait, &all_requested);
    if (failure == 0) threads.push_back(thread);
  }
  all_requested.count_down();
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  if (failure != 0) fail_thread(purpose, std::system_error(failure, std::generic_category()));
}

}  // namespace quintet
