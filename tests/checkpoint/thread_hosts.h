#pragma once
// Threads that act as the hosts of one checkpoint.
//
//   run_hosts(3, [&](HostGroup& hosts) { write_checkpoint(folder, 1, "run", slices, "{}", hosts); });

#include <atomic>
#include <barrier>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace quintet::testing {

/// Threads as hosts.
class ThreadHosts : public HostGroup {
 public:
  struct Meeting {
    explicit Meeting(int count) : barrier(count) {}
    std::barrier<> barrier;
    std::atomic<bool> ok{true};
    std::string text;  // the first host's
    std::mutex mutex;
    std::condition_variable told;
    std::map<std::pair<int, int>, std::string> texts;  // under way, by {from, to}
  };
  ThreadHosts(std::shared_ptr<Meeting> meeting, int index, int count)
      : meeting_(std::move(meeting)), index_(index), count_(count) {}
  int index() const override { return index_; }
  int count() const override { return count_; }
  bool all_ok(bool ok) override {
    if (!ok) meeting_->ok = false;
    meeting_->barrier.arrive_and_wait();
    const bool all = meeting_->ok;
    meeting_->barrier.arrive_and_wait();
    meeting_->ok = true;
    meeting_->barrier.arrive_and_wait();
    return all;
  }
  std::string of_first(const std::string& text) override {
    if (index_ == 0) meeting_->text = text;
    meeting_->barrier.arrive_and_wait();
    std::string first = meeting_->text;
    meeting_->barrier.arrive_and_wait();
    return first;
  }
  void tell(int host, const std::string& said) override {
    const std::lock_guard lock(meeting_->mutex);
    meeting_->texts[{index_, host}] = said;
    meeting_->told.notify_all();
  }
  std::string hear(int host) override {
    std::unique_lock lock(meeting_->mutex);
    meeting_->told.wait(lock, [&] { return meeting_->texts.contains({host, index_}); });
    return meeting_->texts.extract({host, index_}).mapped();
  }

 private:
  std::shared_ptr<Meeting> meeting_;
  int index_, count_;
};

/// Runs `work` as each of `count` hosts and waits for all.
inline void run_hosts(int count, const std::function<void(HostGroup&)>& work) {
  auto meeting = std::make_shared<ThreadHosts::Meeting>(count);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      ThreadHosts hosts(meeting, i, count);
      work(hosts);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace quintet::testing
