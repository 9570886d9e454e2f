#pragma once
// Ranks share the making of chunks: each chunk has an owner, who makes it with its threads and sends
// it to the others. So every rank sees the whole stream, and preprocesses its part of it. Another host gets a
// chunk once: one of its ranks passes it on to its neighbours.

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "data/service/mailbox.h"
#include "data/service/wire.h"
#include "runtime/base/clock.h"

namespace quintet::data {

/// Of a rank's chunks that are not needed yet, as messages.
constexpr int64_t kChunkBytesAhead = 64 << 20;

/// Of ranks on `hosts`, to which rank `self` sends what comes from another, or from itself.
class ChunkRoutes {
 public:
  ChunkRoutes(std::vector<std::string> hosts, int self);
  /// Its own chunks go to its neighbours and to one rank of every other host, another host's to its
  /// neighbours; nobody else's.
  const std::vector<int>& receivers(int from) const;

 private:
  std::vector<std::string> hosts_;
  int self_;
  std::vector<int> neighbours_, of_own_, nobody_;
};

class ChunkExchange final : public ChunkRunner {
 public:
  /// Between ranks of the job from `first` on, which are on `hosts`; this is number `index` of them.
  ChunkExchange(Mailbox& mail, int first, const std::vector<std::string>& hosts, int index,
                int threads);
  int64_t new_stream() override { return streams_++; }
  std::future<WorkChunk> run(int64_t stream, int64_t chunk, const Provenance& provenance,
                             std::function<WorkChunk()> make) override;
  /// As many as keep the threads of all ranks busy, if they fit into kChunkBytesAhead; few, until the first
  /// chunks show their size. Every rank holds all chunks that are ahead, whoever makes them.
  int64_t prefetch_depth() const override;
  void depends_on(int64_t stream, std::optional<int64_t> chunk) override;
  /// Which of the ranks owns the chunk that this one has been waiting for longer than a moment; -1:
  /// none.
  int awaits();
  void cancel() override;
  /// A message of tag chunk or chunks_end. From the thread that polls the mailbox.
  void receive(Message message);
  /// Ends the threads and tells the others that nothing more comes.
  void leave();
  /// Whether the others have left, too.
  bool all_left() const { return left_ + 1 == ranks_; }

 private:
  using Id = std::pair<int64_t, int64_t>;
  struct Awaited {
    std::promise<WorkChunk> promise;
    const Provenance* provenance = nullptr;
  };
  int owner(Id id) const { return static_cast<int>((id.first + id.second) % ranks_); }
  void send_to_others(Id id, const WorkChunk& chunk);
  void pass_on(int from, const std::string& bytes);
  void arrived(std::string bytes);
  void count(const std::string& message);

  Mailbox& mail_;
  ChunkRoutes routes_;
  int first_, ranks_, index_;
  int64_t streams_ = 0;
  std::atomic<int> left_{0};
  std::atomic<int64_t> chunks_{0}, bytes_{0};  // sent and received
  std::mutex mutex_;
  bool cancelled_ = false;           // guarded by mutex_, as are
  std::map<Id, Awaited> awaited_;    // asked for, not here yet
  std::map<Id, std::string> early_;  // here, not asked for yet
  std::optional<Id> needed_;         // what the caller waits for,
  Clock::time_point needed_since_;
  std::unique_ptr<ChunkThreads> threads_;  // none after leave()
};

}  // namespace quintet::data
