#include "runtime/mesh/collectives/work_queue.h"

#include <utility>

namespace quintet {

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

WorkQueue::Handle WorkQueue::put(std::function<void()> work) {
  auto task = std::make_shared<Task>();
  task->work = std::move(work);
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(task);
  }
  changed_.notify_all();
  return task;
}

/// Does the first task; `lock` is let go meanwhile.
void WorkQueue::run_next(std::unique_lock<std::mutex>& lock) {
  const Handle task = tasks_.front();
  tasks_.pop_front();
  busy_ = true;
  lock.unlock();
  try {
    task->work();
  } catch (...) {
    task->error = std::current_exception();
  }
  task->work = nullptr;
  lock.lock();
  busy_ = false;
  task->done = true;
  changed_.notify_all();
}

void WorkQueue::wait(const Handle& task) {
  std::unique_lock lock(mutex_);
  while (!task->done) {
    if (!busy_)
      run_next(lock);  // FIFO: the task itself or one before it
    else
      changed_.wait(lock);
  }
  if (task->error) std::rethrow_exception(task->error);
}

void WorkQueue::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return (!tasks_.empty() && !busy_) || (closed_ && tasks_.empty()); });
    if (tasks_.empty()) return;
    run_next(lock);
  }
}

}  // namespace quintet
