#pragma once
// Training ranks without data ranks: each makes its share of the chunks and gets the others'.
//
//   BatchOptions options{.runner = std::make_shared<PeerChunks>(mail, ranks, rank, hosts, threads)};

#include <thread>
#include <vector>

#include "data/service/chunk_exchange.h"

namespace quintet::data {

class PeerChunks final : public ChunkRunner {
 public:
  /// Between the first `ranks` ranks of the job, whose hosts are named in messages. Their Batches
  /// must take the same way: the same restore() before the first batch, and as many batches.
  PeerChunks(Mailbox& mail, int ranks, int index, std::vector<std::string> hosts, int threads);
  /// Waits until the others have what they were sent.
  ~PeerChunks() override;
  int64_t new_stream() override { return exchange_.new_stream(); }
  std::future<WorkChunk> run(int64_t stream, int64_t chunk, const Provenance& provenance,
                             std::function<WorkChunk()> make) override {
    return exchange_.run(stream, chunk, provenance, std::move(make));
  }
  int64_t prefetch_depth() const override { return exchange_.prefetch_depth(); }
  void depends_on(int64_t stream, std::optional<int64_t> chunk) override {
    exchange_.depends_on(stream, chunk);
  }
  std::string held_up_by() override;
  void cancel() override { exchange_.cancel(); }

 private:
  void run_poller();

  Mailbox& mail_;
  std::vector<std::string> hosts_;
  ChunkExchange exchange_;
  std::atomic<bool> leaving_{false}, abandoned_{false};
  std::thread poller_;
};

}  // namespace quintet::data
