#include "data/service/server.h"

#include <chrono>
#include <condition_variable>
#include <thread>

#include "data/service/chunk_exchange.h"
#include "runtime/base/check.h"
#include "runtime/base/thread.h"

namespace quintet::data {
namespace {

/// Makes this rank's batches in a thread, a few ahead of the slowest shard.
class Producer {
 public:
  Producer(int index, size_t capacity) : index_(index), capacity_(capacity) {}
  ~Producer() { stop(); }

  void start(std::function<std::unique_ptr<Batches>()> open) {
    thread_ = start_thread("to make batches", [this, open = std::move(open)] { run(open); });
  }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  /// Delivery number n of this rank, if it is there; after the last one, the last one again.
  std::shared_ptr<const Delivery> delivery(int64_t n) {
    const std::lock_guard lock(mutex_);
    if (prepared_.empty()) return nullptr;
    const int64_t last = first_ + static_cast<int64_t>(prepared_.size()) - 1;
    if (n > last) return ended_ ? prepared_.back() : nullptr;
    return prepared_[static_cast<size_t>(n - first_)];
  }
  /// Those before number n are not needed any more.
  void drop_before(int64_t n) {
    const std::lock_guard lock(mutex_);
    for (; first_ < n && prepared_.size() > (ended_ ? 1u : 0u); ++first_) prepared_.pop_front();
    changed_.notify_all();
  }

 private:
  void run(const std::function<std::unique_ptr<Batches>()>& open) {
    std::unique_ptr<Batches> batches;
    while (true) {
      auto delivery = std::make_shared<Delivery>();
      delivery->sender = index_;
      try {
        if (!batches) batches = open();
        delivery->batch = batches->next();
        delivery->position = batches->position();
      } catch (...) {
        delivery->error = std::current_exception();
      }
      std::unique_lock lock(mutex_);
      ended_ = !delivery->batch.has_value();
      prepared_.push_back(std::move(delivery));
      changed_.wait(lock, [&] { return stopping_ || ended_ || prepared_.size() < capacity_; });
      if (stopping_ || ended_) return;
    }
  }

  int index_;
  size_t capacity_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<const Delivery>> prepared_;  // guarded by mutex_, as are
  int64_t first_ = 0;                                     // number of the front
  bool ended_ = false, stopping_ = false;
};

/// A shard's leader, as a data rank sees it.
struct Leader {
  Start start;
  int64_t credits = 0, sent = 0;
  bool stopped = false;
};

class Server {
 public:
  Server(Mailbox& mail, const ServiceRanks& ranks, int index, const Provider& provider,
         const DatasetConfig& config, FeatureConverterPtr converter,
         const std::vector<std::string>& hosts, int threads)
      : mail_(mail),
        ranks_(ranks),
        index_(index),
        provider_(provider),
        config_(config),
        converter_(std::move(converter)),
        threads_(threads),
        exchange_(std::make_shared<ChunkExchange>(
            mail, ranks.first,
            std::vector(hosts.begin() + ranks.first, hosts.begin() + ranks.first + ranks.count),
            index, threads)) {}

  void run() {
    while (!all_stopped()) {
      bool idle = true;
      while (auto message = mail_.poll()) {
        receive(std::move(*message));
        idle = false;
      }
      if (deliver()) idle = false;
      tell_what_holds_up();
      if (idle) std::this_thread::sleep_for(kPollPause);
    }
    leave();
  }

 private:
  bool started() const {
    return !leaders_.empty() &&
           static_cast<int64_t>(leaders_.size()) == leaders_.begin()->second.start.shard.count;
  }
  bool all_stopped() const {
    return started() && std::all_of(leaders_.begin(), leaders_.end(),
                                    [](const auto& leader) { return leader.second.stopped; });
  }

  void receive(Message message) {
    switch (message.tag) {
      case Tag::start:
        return begin(message.from, start_from_wire(message.bytes));
      case Tag::credit:
        ++leaders_.at(message.from).credits;
        return;
      case Tag::stop:
        leaders_.at(message.from).stopped = true;
        mail_.send(message.from, Tag::stopped, "");
        return;
      case Tag::chunk:
      case Tag::chunks_end:
        return exchange_->receive(std::move(message));
      default:
        fail(ExitCode::kPeer, "data service: an unexpected message from rank {}", message.from);
    }
  }

  void begin(int rank, Start start) {
    leaders_[rank] = {start, start.credits, 0, false};
    if (!started()) return;
    producer_ = std::make_unique<Producer>(index_, static_cast<size_t>(start.credits));
    producer_->start([this, start] {
      for (const auto& [leader, other] : leaders_)
        QT_CHECK_AS(ExitCode::kPeer,
                    other.start.position == start.position && other.start.seed == start.seed,
                    "data service: ranks {} and {} begin at different places of the data; do they "
                    "read the same checkpoint?",
                    leader, leaders_.begin()->first);
      DatasetConfig config = config_;
      config.seed = start.seed;
      std::shared_ptr<ChunkRunner> runner = exchange_;
      if (config.virtual_shards > 1) runner = std::make_shared<ChunkThreads>(threads_);
      auto batches = std::make_unique<Batches>(
          provider_, config, converter_,
          BatchOptions{.prefetch = 0, .batch_shard = {index_, ranks_.count}, .runner = runner});
      if (!start.position.empty()) batches->restore(start.position);
      return batches;
    });
  }

  /// Sends what there is credit for; false if there was nothing to send.
  bool deliver() {
    if (!producer_) return false;
    bool any = false;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (auto& [rank, leader] : leaders_) {
      while (leader.credits > 0 && !leader.stopped) {
        const auto delivery = producer_->delivery(leader.sent);
        if (!delivery) break;
        mail_.send(rank, Tag::batch, to_wire(*delivery, leader.start.shard));
        --leader.credits;
        ++leader.sent;
        any = true;
      }
      if (!leader.stopped) least = std::min(least, leader.sent);
    }
    producer_->drop_before(least);
    return any;
  }

  /// So that the training ranks name the data rank at fault and not one that waits for it.
  void tell_what_holds_up() {
    const int now = exchange_->awaits();
    if (now == held_up_by_) return;
    held_up_by_ = now;
    for (const auto& [rank, leader] : leaders_)
      if (!leader.stopped) mail_.send(rank, Tag::waiting, to_wire(index_, now));
  }

  /// Ends the threads, then waits until the other data ranks have all they were sent.
  void leave() {
    exchange_->cancel();
    producer_->stop();
    producer_.reset();
    exchange_->leave();
    while (!exchange_->all_left() || !mail_.empty()) {
      if (auto message = mail_.poll())
        receive(std::move(*message));
      else
        std::this_thread::sleep_for(kPollPause);
    }
  }

  Mailbox& mail_;
  ServiceRanks ranks_;
  int index_;
  const Provider& provider_;
  const DatasetConfig& config_;
  FeatureConverterPtr converter_;
  int threads_;
  std::shared_ptr<ChunkExchange> exchange_;
  std::map<int, Leader> leaders_;  // by rank
  std::unique_ptr<Producer> producer_;
  int held_up_by_ = -1;
};

}  // namespace

void serve_batches(Mailbox& mail, const ServiceRanks& ranks, int index, const Provider& provider,
                   const DatasetConfig& config, FeatureConverterPtr converter,
                   const std::vector<std::string>& hosts, int threads) {
  Server(mail, ranks, index, provider, config, std::move(converter), hosts, threads).run();
}

}  // namespace quintet::data
