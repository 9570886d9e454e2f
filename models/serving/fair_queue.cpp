#include "models/serving/fair_queue.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace quintet::serving {

void FairQueue::add(WaitingJob job) {
  if (jobs_.size() == jobs_.capacity()) jobs_.reserve(2 * jobs_.size() + 1);  // before it counts
  const auto [client, is_new] = clients_.try_emplace(job.job.client);
  if (is_new) {  // who comes later claims nothing for the time before
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [name, other] : clients_)
      if (other.jobs > 0) least = std::min(least, other.served);
    if (least < std::numeric_limits<double>::infinity()) client->second.served = least;
  }
  ++client->second.jobs;
  jobs_.push_back(std::move(job));
}

std::vector<WaitingJob>::iterator FairQueue::best(Clock::time_point now) {
  using std::chrono::duration_cast;
  using std::chrono::seconds;
  const auto rank = [&](const WaitingJob& w) {
    const int64_t waited = duration_cast<seconds>(now - w.since).count() / 10;
    return std::tuple(-(w.job.priority + waited), clients_.at(w.job.client).served,
                      w.job.deadline.value_or(Clock::time_point::max()), w.id);
  };
  return std::min_element(
      jobs_.begin(), jobs_.end(),
      [&](const WaitingJob& a, const WaitingJob& b) { return rank(a) < rank(b); });
}

const Job& FairQueue::next(Clock::time_point now) { return best(now)->job; }

WaitingJob FairQueue::take_next(Clock::time_point now) {
  const auto at = best(now);
  WaitingJob job = std::move(*at);
  jobs_.erase(at);
  return job;
}

std::vector<WaitingJob> FairQueue::take_if(const std::function<bool(const WaitingJob&)>& leaves) {
  // No job may be lost for want of memory: it is taken when there is room for it.
  const auto first = std::stable_partition(jobs_.begin(), jobs_.end(),
                                           [&](const WaitingJob& job) { return !leaves(job); });
  std::vector<WaitingJob> left(std::make_move_iterator(first),
                               std::make_move_iterator(jobs_.end()));
  jobs_.erase(first, jobs_.end());
  return left;
}

void FairQueue::account(const std::string& client, int64_t tokens) {
  clients_.at(client).served += static_cast<double>(tokens);
}

void FairQueue::leave(const std::string& client) {
  const auto found = clients_.find(client);
  if (--found->second.jobs == 0) clients_.erase(found);
}

}  // namespace quintet::serving
