#pragma once
// A thread that does what it is given, in order: reading requests and writing answers as JSON takes
// milliseconds, which neither the sockets nor the batch should wait for.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <new>
#include <thread>

#include "apps/process/log.h"
#include "runtime/base/thread.h"

namespace quintet::serve {

/// Does what takes little memory when there is none: what others end soon frees some. Throws
/// bad_alloc after five seconds.
template <class Action>
void insist(const Action& action) {
  for (int tries = 1;; ++tries) {
    try {
      return action();
    } catch (const std::bad_alloc&) {
      if (tries == 500) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

class Worker {
 public:
  using Tasks = std::list<std::function<void()>>;

  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  /// What `task` throws is logged. What is still there at the end is done.
  void post(std::function<void()> task) {
    Tasks one;
    one.push_back(std::move(task));
    post(std::move(one));
  }
  /// Of tasks made before they are needed, so that memory is not.
  void post(Tasks&& tasks) noexcept {
    {
      const std::lock_guard lock(mutex_);
      tasks_.splice(tasks_.end(), tasks);
    }
    changed_.notify_one();
  }

 private:
  void run() {
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
        log_line("serve: {}\n", error.what());
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Tasks tasks_;
  bool ended_ = false;
  std::thread thread_ = start_thread("to answer requests", [this] { run(); });
};

}  // namespace quintet::serve
