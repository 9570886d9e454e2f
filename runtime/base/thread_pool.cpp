#include "runtime/base/thread_pool.h"

#include <atomic>

#include "runtime/base/thread.h"

namespace quintet {

ThreadPool::ThreadPool(std::string_view purpose, int threads, Options options)
    : options_(std::move(options)) {
  try {
    for (int i = 0; i < threads; ++i) threads_.push_back(start_thread(purpose, [this] { run(); }));
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    if (options_.at_end == AtEnd::drop) tasks_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::post(std::function<void()> task) {
  Tasks one;
  one.push_back(std::move(task));
  post(std::move(one));
}

void ThreadPool::post(Tasks&& tasks) noexcept {
  const bool several = tasks.size() > 1;
  {
    const std::lock_guard lock(mutex_);
    tasks_.splice(tasks_.end(), tasks);
  }
  several ? changed_.notify_all() : changed_.notify_one();
}

void ThreadPool::run() {
  while (true) {
    Tasks task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ended_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task.splice(task.begin(), tasks_, tasks_.begin());
    }
    try {
      task.front()();
    } catch (const std::exception& error) {
      if (!options_.failed) throw;
      options_.failed(error);
    }
  }
}

void ThreadPool::for_each(int64_t count, const std::function<void(int64_t)>& work) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  const auto guarded = [&](const auto& action) {
    try {
      action();
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  };
  const auto run_some = [&] {
    guarded([&] {
      for (int64_t i; !failed && (i = next++) < count;) work(i);
    });
  };
  std::vector<std::future<void>> others;
  guarded([&] {
    for (int64_t i = 0; i < size(); ++i) others.push_back(submit(run_some));
  });
  run_some();
  for (const auto& other : others) other.wait();
  if (error) std::rethrow_exception(error);
}

}  // namespace quintet
