#pragma once
// A training rank's side of the data service: batches come from data ranks, ahead of the step that
// needs them.
//
//   ServiceClient batches(mail, {.data_ranks = {6, 2}, .shard = {1, 3}, .group = {2, 3}}, hosts);
//   batches.restore(position);
//   while (auto batch = batches.next()) ...

#include <chrono>
#include <condition_variable>
#include <thread>
#include <vector>

#include "data/service/server.h"

namespace quintet::data {

struct ServiceOptions {
  ServiceRanks data_ranks;
  Shard shard = {};             // of every batch that this rank's group gets
  std::vector<int> group = {};  // ranks of the job that get the same rows; the first asks for them
  int64_t seed = 0;
  int64_t prefetch_depth = 4;    // batches that each data rank may send before they are used
  double timeout_seconds = 300;  // of waiting for a batch before the run ends
  double patience_seconds = 10;  // of waiting before each line about it
};

class ServiceClient final : public BatchSource {
 public:
  /// `hosts`: of every rank of the job, for messages.
  ServiceClient(Mailbox& mail, ServiceOptions options, std::vector<std::string> hosts);
  /// Tells the data ranks to end and takes in what is under way. All ranks of the group end
  /// together.
  ~ServiceClient() override;

  /// Throws what the data rank met, and kPeer when a data rank is silent for timeout_seconds.
  std::optional<Batch> next() override;
  std::string position() const override { return position_; }
  /// Only before the first next(). The data ranks check the position; next() throws what they find.
  void restore(std::string_view position) override { position_ = position; }

 private:
  bool leads() const;
  void start();
  void run();
  void receive(Message message);
  void stop();
  int culprit(int data_rank) const;  // guarded by mutex_
  void report_waiting(int data_rank, double seconds) const;

  Mailbox& mail_;
  ServiceOptions options_;
  std::vector<std::string> hosts_;
  int rank_ = 0;  // of this process in the job
  std::string position_;
  int64_t next_ = 0;

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::deque<Delivery>> here_;  // of each data rank; guarded by mutex_, as are
  std::vector<int> dependencies_;           // the data rank that each one waits for; -1: none
  std::exception_ptr error_;                // of the thread
  bool stopping_ = false, abandoned_ = false;
  int stopped_ = 0;  // data ranks (or the leader) that have answered a stop
};

}  // namespace quintet::data
