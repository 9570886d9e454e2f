#pragma once
// A stream of the fake CUDA: a thread that runs its work in order. fake_nccl.cpp, a library of its
// own, adds to it.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "cuda_runtime_api.h"

struct FakeStream {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;
  bool closed = false;
  const FakeCapture* capture = nullptr;  // that records it
  int recorded = 0, joined = 0;          // works of a recording, those that its device waits for
  std::thread thread{[this] { run(); }};

  bool is_recorded() {
    if (capture != nullptr && !capture->is_recording()) capture = nullptr;
    return capture != nullptr;
  }
  void add(std::function<void()> next) {
    if (!is_recorded()) return run_later(std::move(next));
    ++recorded;
    capture->queue([this, next = std::move(next)] { run_later(next); });
  }
  void run_later(std::function<void()> next) {
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
