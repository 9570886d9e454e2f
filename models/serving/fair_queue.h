#pragma once
// A fair queue of jobs that wait. First comes the highest priority (which grows with waiting), then the
// client that has had the least of the machine, then the earliest deadline, then who came first.
// Used under the engine's lock.

#include <map>
#include <string>
#include <vector>

#include "models/serving/job.h"

namespace quintet::serving {

struct WaitingJob {
  uint64_t id = 0;
  Job job;
  Clock::time_point since;
};

class FairQueue {
 public:
  void add(WaitingJob job);
  size_t size() const { return jobs_.size(); }
  bool empty() const { return jobs_.empty(); }
  /// The first job; the queue must not be empty.
  const Job& next(Clock::time_point now);
  WaitingJob take_next(Clock::time_point now);
  /// Those that `leaves` accepts, in the order they came.
  std::vector<WaitingJob> take_if(const std::function<bool(const WaitingJob&)>& leaves);

  /// Work done for a client, in tokens read.
  void account(const std::string& client, int64_t tokens);
  /// One of the client's jobs is over. A client without jobs is forgotten.
  void leave(const std::string& client);

 private:
  struct Client {
    int64_t jobs = 0;
    double served = 0;
  };
  std::vector<WaitingJob>::iterator best(Clock::time_point now);

  std::vector<WaitingJob> jobs_;
  std::map<std::string, Client> clients_;
};

}  // namespace quintet::serving
