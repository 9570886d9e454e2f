#pragma once
// Tasks done one after another, in the order in which they came, by a thread of the queue or by
// whoever waits for one and finds it not begun: then nobody is woken in between.

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/base/thread.h"

namespace quintet {

class WorkQueue {
 public:
  class Task {
    friend class WorkQueue;
    std::function<void()> work;
    bool done = false;
    std::exception_ptr error;
  };
  using Handle = std::shared_ptr<Task>;

  WorkQueue() : thread_(start_thread("to wait for other ranks", [this] { serve(); })) {}
  /// Finishes what was put in.
  ~WorkQueue();
  Handle put(std::function<void()> work);
  /// Returns when the task is done; throws what it threw.
  void wait(const Handle& task);

 private:
  void serve();
  void run_next(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Handle> tasks_;
  bool busy_ = false, closed_ = false;
  std::thread thread_;
};

}  // namespace quintet
