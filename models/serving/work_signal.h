#pragma once
// What a thread that runs engines sleeps on while none of them has work.

#include <condition_variable>
#include <mutex>

namespace quintet::serving {

class WorkSignal {
 public:
  /// From any thread: there may be work.
  void ring() {
    const std::lock_guard lock(mutex_);
    rung_ = true;
    changed_.notify_one();
  }
  /// Until it rings, or has rung since the last wait.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return rung_; });
    rung_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool rung_ = false;
};

}  // namespace quintet::serving
