#pragma once
// Training ranks without data ranks: each makes its share of the units and gets the others'.
//
//   BatchOptions options{.runner = std::make_shared<PeerUnits>(mail, ranks, rank, hosts, threads)};

#include <thread>
#include <vector>

#include "data/service/unit_exchange.h"

namespace quintet::data {

class PeerUnits final : public UnitRunner {
 public:
  /// Between the first `ranks` ranks of the job, whose hosts are named in messages. Their Batches
  /// must take the same way: the same restore() before the first batch, and as many batches.
  PeerUnits(Mailbox& mail, int ranks, int index, std::vector<std::string> hosts, int threads);
  /// Waits until the others have what they were sent.
  ~PeerUnits() override;
  int64_t new_stream() override { return exchange_.new_stream(); }
  std::future<Unit> run(int64_t stream, int64_t unit, const Origin& origin,
                        std::function<Unit()> make) override {
    return exchange_.run(stream, unit, origin, std::move(make));
  }
  int64_t ahead() const override { return exchange_.ahead(); }
  void waits_for(int64_t stream, std::optional<int64_t> unit) override {
    exchange_.waits_for(stream, unit);
  }
  std::string held_up_by() override;
  void cancel() override { exchange_.cancel(); }

 private:
  void run_poller();

  Mailbox& mail_;
  std::vector<std::string> hosts_;
  UnitExchange exchange_;
  std::atomic<bool> leaving_{false}, abandoned_{false};
  std::thread poller_;
};

}  // namespace quintet::data
