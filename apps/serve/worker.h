#pragma once
// A thread that does what it is given, in order: reading requests and writing answers as JSON takes
// milliseconds, which neither the sockets nor the batch should wait for.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace quintet::serve {

class Worker {
 public:
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  /// `task` must not throw. What is still there at the end is done.
  void post(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void run() {
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ended_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool ended_ = false;
  std::thread thread_{[this] { run(); }};
};

}  // namespace quintet::serve
