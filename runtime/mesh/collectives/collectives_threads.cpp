#include "runtime/mesh/collectives/collectives_threads.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <string_view>

#include "kernels/device.h"
#include "runtime/base/check.h"
#include "runtime/base/thread.h"
#include "runtime/mesh/collectives/collectives_host.h"

namespace quintet {
namespace {

/// A message on its way: the receiver copies straight from the sender's memory.
struct Post {
  const void* data;
  int64_t bytes;
  const Activity* activity;
  bool copying = false, taken = false;
};

/// What the ranks of one channel share.
struct Exchange {
  explicit Exchange(const ThreadRanks& r) : ranks(r), inboxes(static_cast<size_t>(r.count)) {
    for (auto& inbox : inboxes) inbox.resize(static_cast<size_t>(r.count));
    if (ranks.hosts.empty()) ranks.hosts.assign(static_cast<size_t>(r.count), "localhost");
  }
  ThreadRanks ranks;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::vector<std::deque<Post*>>> inboxes;  // [to][from]
  std::shared_ptr<std::string> failure = std::make_shared<std::string>();
  std::vector<std::shared_ptr<Exchange>> channels;  // further ones, in order of creation
};

bool go_together(const Activity& sender, const Activity& receiver) {
  const std::string_view sent = sender.collective, received = receiver.collective;
  return sender.count == receiver.count && sender.group == receiver.group &&
         (sent == received || (sent == "send" && received == "receive"));
}

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<Exchange> shared, int rank)
      : shared_(std::move(shared)), rank_(rank) {}
  int rank() const override { return rank_; }
  const std::vector<std::string>& hosts() const override { return shared_->ranks.hosts; }

  std::unique_ptr<Transport> channel() override {
    const std::lock_guard lock(shared_->mutex);
    auto& channels = shared_->channels;
    const size_t number = channels_++;
    if (number == channels.size()) {
      channels.push_back(std::make_shared<Exchange>(shared_->ranks));
      channels.back()->failure = shared_->failure;
    }
    return std::make_unique<ThreadTransport>(channels[number], rank_);
  }

  void exchange(std::span<const Message> sends, std::span<const Message> receives,
                const Activity& activity) override {
    std::vector<Post> posts;
    for (const Message& m : sends) posts.push_back({m.data, m.bytes, &activity});
    std::unique_lock lock(shared_->mutex);
    for (size_t i = 0; i < sends.size(); ++i) inbox(sends[i].rank, rank_).push_back(&posts[i]);
    shared_->changed.notify_all();
    try {
      for (const Message& m : receives) take(m, activity, lock);
      for (size_t i = 0; i < posts.size(); ++i)
        wait(lock, sends[i].rank, activity, [&] { return posts[i].taken; });
    } catch (...) {
      // Nobody may look at posts of a stack that is gone.
      for (const Message& m : sends)
        std::erase_if(inbox(m.rank, rank_), [&](const Post* p) {
          return p >= posts.data() && p < posts.data() + posts.size();
        });
      shared_->changed.wait(lock, [&] {
        return std::none_of(posts.begin(), posts.end(),
                            [](const Post& p) { return p.copying && !p.taken; });
      });
      throw;
    }
  }

 private:
  std::deque<Post*>& inbox(int to, int from) {
    return shared_->inboxes[static_cast<size_t>(to)][static_cast<size_t>(from)];
  }

  void take(const Message& m, const Activity& activity, std::unique_lock<std::mutex>& lock) {
    auto& posts = inbox(rank_, m.rank);
    wait(lock, m.rank, activity, [&] { return !posts.empty(); });
    Post& post = *posts.front();
    if (!go_together(*post.activity, activity) || post.bytes != m.bytes) {
      *shared_->failure =
          fmt::format("collectives out of order: rank {} is in {}, rank {} in {}", m.rank,
                      to_string(*post.activity), rank_, to_string(activity));
      shared_->changed.notify_all();
      throw Error(ExitCode::kPeer, *shared_->failure);
    }
    posts.pop_front();
    post.copying = true;  // the sender waits until it is taken
    lock.unlock();
    if (m.bytes > 0) std::memcpy(m.data, post.data, static_cast<size_t>(m.bytes));
    lock.lock();
    post.taken = true;
    shared_->changed.notify_all();
  }

  template <typename Ready>
  void wait(std::unique_lock<std::mutex>& lock, int peer, const Activity& activity, Ready ready) {
    const bool in_time = shared_->changed.wait_for(
        lock, shared_->ranks.timeout, [&] { return ready() || !shared_->failure->empty(); });
    if (in_time && ready()) return;
    if (shared_->failure->empty())
      *shared_->failure =
          fmt::format("rank {} on {} has waited {} ms for rank {} on {} in {}", rank_,
                      hosts()[static_cast<size_t>(rank_)], shared_->ranks.timeout.count(), peer,
                      hosts()[static_cast<size_t>(peer)], to_string(activity));
    shared_->changed.notify_all();
    throw Error(ExitCode::kPeer, *shared_->failure);
  }

  std::shared_ptr<Exchange> shared_;
  int rank_;
  size_t channels_ = 0;  // made by this rank
};

/// Tells every channel, so that nobody waits for a rank that is gone.
void announce(Exchange& exchange, const std::string& failure) {
  const std::lock_guard lock(exchange.mutex);
  if (exchange.failure->empty()) *exchange.failure = failure;
  exchange.changed.notify_all();
  for (const auto& channel : exchange.channels) announce(*channel, failure);
}

}  // namespace

void run_threads(const ThreadRanks& ranks, const std::function<void(Comm&)>& body) {
  const auto shared = std::make_shared<Exchange>(ranks);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  const auto run_rank = [&](int rank) {
    try {
      const auto comm = host_comm(std::make_unique<ThreadTransport>(shared, rank),
                                  ranks.device == nullptr ? Device::cpu() : *ranks.device);
      try {
        body(*comm);
      } catch (const std::exception& error) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        announce(*shared, fmt::format("rank {} has failed: {}", rank, error.what()));
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
  };
  try {
    for (int rank = 0; rank < ranks.count; ++rank)
      threads.push_back(start_thread("for a rank", [&, rank] { run_rank(rank); }));
  } catch (const std::exception& error) {  // those that run must not wait for it
    {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
    announce(*shared, error.what());
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace quintet
