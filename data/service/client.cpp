#include "data/service/client.h"

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/process/messages.h"
#include "runtime/base/thread.h"
#include "runtime/mpi/call.h"

namespace quintet::data {
namespace {

constexpr double kSecondsToStop = 10;

}  // namespace

ServiceClient::ServiceClient(Mailbox& mail, ServiceOptions options, std::vector<std::string> hosts)
    : mail_(mail),
      options_(std::move(options)),
      hosts_(std::move(hosts)),
      here_(static_cast<size_t>(options_.data_ranks.count)),
      dependencies_(here_.size(), -1) {
  QT_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
  if (options_.group.empty()) options_.group = {rank_};
}

ServiceClient::~ServiceClient() {
  if (std::uncaught_exceptions() > 0 && thread_.joinable()) {  // the job is about to be ended
    {
      const std::lock_guard lock(mutex_);
      abandoned_ = true;
    }
    thread_.join();
    return;
  }
  try {
    stop();
  } catch (const std::exception& error) {
    print_warning("data service: {}", error.what());
  }
}

bool ServiceClient::leads() const { return options_.group.front() == rank_; }

void ServiceClient::start() {
  if (thread_.joinable()) return;
  if (leads())
    for (int i = 0; i < options_.data_ranks.count; ++i)
      mail_.send(options_.data_ranks.first + i, Tag::start,
                 to_wire(Start{options_.seed, position_, options_.shard, options_.prefetch_depth}));
  thread_ = start_thread("to take data from other ranks", [this] { run(); });
}

/// Takes in messages until all who send have answered a stop.
void ServiceClient::run() {
  const int senders = leads() ? options_.data_ranks.count : 1;
  std::optional<Clock::time_point> stop_began;
  try {
    while (true) {
      while (auto message = mail_.poll()) receive(std::move(*message));
      {
        const std::lock_guard lock(mutex_);
        if (abandoned_ || (stopped_ == senders && mail_.empty())) return;
        if (stopping_ && !stop_began) stop_began = Clock::now();
      }
      if (stop_began && seconds_since(*stop_began) > kSecondsToStop) return;
      std::this_thread::sleep_for(kPollPause);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    changed_.notify_all();
  }
}

void ServiceClient::receive(Message message) {
  if (leads() && (message.tag != Tag::stopped || stopped_ + 1 == options_.data_ranks.count))
    for (const int member : options_.group)
      if (member != rank_) mail_.send(member, message.tag, message.bytes);
  if (message.tag == Tag::batch) {
    Delivery delivery = delivery_from_wire(message.bytes);
    const std::lock_guard lock(mutex_);
    here_.at(static_cast<size_t>(delivery.sender)).push_back(std::move(delivery));
    changed_.notify_all();
  } else if (message.tag == Tag::waiting) {
    const auto [sender, other] = waiting_from_wire(message.bytes);
    const std::lock_guard lock(mutex_);
    dependencies_.at(static_cast<size_t>(sender)) = other;
  } else {
    const std::lock_guard lock(mutex_);
    ++stopped_;
  }
}

std::optional<Batch> ServiceClient::next() {
  start();
  const auto data_rank = static_cast<size_t>(next_ % options_.data_ranks.count);
  const auto begin = Clock::now();
  std::unique_lock lock(mutex_);
  for (double patience = options_.patience_seconds; here_[data_rank].empty();
       patience += options_.patience_seconds) {
    const double least = std::min(patience, options_.timeout_seconds);
    changed_.wait_until(lock, begin + std::chrono::duration<double>(least),
                        [&] { return error_ || !here_[data_rank].empty(); });
    if (error_) std::rethrow_exception(error_);
    if (!here_[data_rank].empty()) break;
    report_waiting(culprit(static_cast<int>(data_rank)), seconds_since(begin));
  }
  Delivery& first = here_[data_rank].front();
  if (first.error) std::rethrow_exception(first.error);
  if (!first.batch) return std::nullopt;  // stays: the end is the end
  Delivery delivery = std::move(first);
  here_[data_rank].pop_front();
  lock.unlock();
  if (leads()) mail_.send(options_.data_ranks.first + static_cast<int>(data_rank), Tag::credit, "");
  position_ = joined_position(position_, delivery.position, options_.data_ranks.count);
  ++next_;
  return std::move(delivery.batch);
}

/// Who holds up a data rank: itself, or the one it waits for.
int ServiceClient::culprit(int data_rank) const {
  for (int steps = 0; steps < options_.data_ranks.count; ++steps) {
    const int other = dependencies_[static_cast<size_t>(data_rank)];
    if (other < 0) break;
    data_rank = other;
  }
  return data_rank;
}

void ServiceClient::report_waiting(int data_rank, double seconds) const {
  const int rank = options_.data_ranks.first + data_rank;
  const std::string& host = hosts_.at(static_cast<size_t>(rank));
  if (seconds < options_.timeout_seconds) {
    fmt::print(stderr, "waiting for data from rank {} ({}): {:.0f} s\n", rank, host, seconds);
    return;
  }
  fail(ExitCode::kPeer,
       "data rank {} on {} has sent nothing for {:.0f} s (--data_timeout): it hangs, is lost, or "
       "cannot keep up; look at its messages, or give the run more data ranks "
       "(--data_service_ranks)",
       rank, host, seconds);
}

void ServiceClient::stop() {
  start();  // data ranks wait to hear of every shard
  if (leads())
    for (int i = 0; i < options_.data_ranks.count; ++i)
      mail_.send(options_.data_ranks.first + i, Tag::stop, "");
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  thread_.join();
}

}  // namespace quintet::data
