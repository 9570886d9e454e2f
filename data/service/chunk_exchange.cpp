#include "data/service/chunk_exchange.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"

namespace quintet::data {
namespace {

constexpr int64_t kChunksOfUnknownSize = 16;
constexpr size_t kIdBytes = 2 * sizeof(int64_t);

WorkChunk cancelled() {
  return {{}, std::make_exception_ptr(Error(ExitCode::kPeer, "data service: the run has ended"))};
}

}  // namespace

ChunkRoutes::ChunkRoutes(std::vector<std::string> hosts, int self)
    : hosts_(std::move(hosts)), self_(self) {
  std::map<std::string_view, std::vector<int>> on_host;
  for (int rank = 0; rank < std::ssize(hosts_); ++rank)
    on_host[hosts_[static_cast<size_t>(rank)]].push_back(rank);
  neighbours_ = on_host[hosts_[static_cast<size_t>(self)]];
  std::erase(neighbours_, self);
  of_own_ = neighbours_;
  for (const auto& [host, ranks] : on_host)
    if (host != hosts_[static_cast<size_t>(self)])  // senders choose different ones of its ranks
      of_own_.push_back(ranks[static_cast<size_t>(self) % ranks.size()]);
}

const std::vector<int>& ChunkRoutes::receivers(int from) const {
  if (from == self_) return of_own_;
  const bool near = hosts_[static_cast<size_t>(from)] == hosts_[static_cast<size_t>(self_)];
  return near ? nobody_ : neighbours_;
}

ChunkExchange::ChunkExchange(Mailbox& mail, int first, const std::vector<std::string>& hosts,
                             int index, int threads)
    : mail_(mail),
      routes_(hosts, index),
      first_(first),
      ranks_(static_cast<int>(hosts.size())),
      index_(index),
      threads_(std::make_unique<ChunkThreads>(threads)) {}

int64_t ChunkExchange::prefetch_depth() const {
  const int64_t busy = threads_->prefetch_depth() * ranks_, chunks = chunks_;
  if (ranks_ == 1) return busy;
  if (chunks == 0) return std::min(busy, kChunksOfUnknownSize);
  return std::clamp<int64_t>(kChunkBytesAhead / (bytes_ / chunks + 1), 1, busy);
}

std::future<WorkChunk> ChunkExchange::run(int64_t stream, int64_t chunk,
                                          const Provenance& provenance,
                                          std::function<WorkChunk()> make) {
  const Id id{stream, chunk};
  if (owner(id) == index_)
    return threads_->run(stream, chunk, provenance, [this, id, make = std::move(make)] {
      WorkChunk made = make();
      send_to_others(id, made);
      return made;
    });
  const std::lock_guard lock(mutex_);
  Awaited awaited;
  awaited.provenance = &provenance;
  std::future<WorkChunk> result = awaited.promise.get_future();
  const auto here = early_.find(id);
  if (here != early_.end()) {
    awaited.promise.set_value(chunk_from_wire(here->second, provenance));
    early_.erase(here);
  } else if (cancelled_) {
    awaited.promise.set_value(cancelled());
  } else {
    awaited_.emplace(id, std::move(awaited));
  }
  return result;
}

void ChunkExchange::count(const std::string& message) {
  bytes_ += std::ssize(message);
  ++chunks_;
}

void ChunkExchange::send_to_others(Id id, const WorkChunk& chunk) {
  if (ranks_ == 1) return;
  std::string bytes(kIdBytes, '\0');
  std::memcpy(bytes.data(), &id.first, sizeof id.first);
  std::memcpy(bytes.data() + sizeof id.first, &id.second, sizeof id.second);
  bytes += to_wire(chunk);
  count(bytes);
  pass_on(index_, bytes);
}

void ChunkExchange::pass_on(int from, const std::string& bytes) {
  for (const int rank : routes_.receivers(from)) mail_.send(first_ + rank, Tag::chunk, bytes);
}

void ChunkExchange::depends_on(int64_t stream, std::optional<int64_t> chunk) {
  const std::lock_guard lock(mutex_);
  needed_.reset();
  if (!chunk) return;
  needed_ = Id{stream, *chunk};
  needed_since_ = Clock::now();
}

int ChunkExchange::awaits() {
  constexpr auto kMoment = std::chrono::milliseconds(500);
  const std::lock_guard lock(mutex_);
  const bool long_since = needed_ && Clock::now() - needed_since_ > kMoment;
  return long_since && owner(*needed_) != index_ ? owner(*needed_) : -1;
}

void ChunkExchange::arrived(std::string bytes) {
  Id id;
  std::memcpy(&id.first, bytes.data(), sizeof id.first);
  std::memcpy(&id.second, bytes.data() + sizeof id.first, sizeof id.second);
  count(bytes);
  bytes.erase(0, kIdBytes);
  const std::lock_guard lock(mutex_);
  const auto awaited = awaited_.find(id);
  if (awaited == awaited_.end()) {
    if (!cancelled_) early_.emplace(id, std::move(bytes));
    return;
  }
  awaited->second.promise.set_value(chunk_from_wire(bytes, *awaited->second.provenance));
  awaited_.erase(awaited);
}

void ChunkExchange::receive(Message message) {
  if (message.tag == Tag::chunks_end) {
    ++left_;
    return;
  }
  {
    // A neighbour that has this rank's chunks_end receives nothing more from it.
    const std::lock_guard lock(mutex_);
    if (!cancelled_) pass_on(message.from - first_, message.bytes);
  }
  arrived(std::move(message.bytes));
}

void ChunkExchange::leave() {
  cancel();
  threads_.reset();
  for (int i = 0; i < ranks_; ++i)
    if (i != index_) mail_.send(first_ + i, Tag::chunks_end, "");
}

void ChunkExchange::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  for (auto& [id, awaited] : awaited_) awaited.promise.set_value(cancelled());
  awaited_.clear();
}

}  // namespace quintet::data
