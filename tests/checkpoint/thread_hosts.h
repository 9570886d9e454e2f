#pragma once
// Threads that act as the hosts of one checkpoint.
//
//   run_hosts(3, [&](HostGroup& hosts) { write_checkpoint(folder, 1, "run", slices, "{}", hosts); });

#include <atomic>
#include <barrier>
#include <functional>
#include <memory>
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
