#pragma once
// A stream of the fake CUDA: a thread that runs its work in order. fake_nccl.cpp, a library of its
// own, adds to it.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

struct FakeStream {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;
  bool closed = false;
  std::thread thread{[this] { run(); }};

  void add(std::function<void()> next) {
    const std::lock_guard lock(mutex);
    work.push_back(std::move(next));
    changed.notify_all();
  }
  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return closed || !work.empty(); });
      if (work.empty()) return;
      const auto next = std::move(work.front());
      work.pop_front();
      lock.unlock();
      next();
      lock.lock();
    }
  }
};
