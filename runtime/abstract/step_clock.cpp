#include "runtime/abstract/step_clock.h"

#include <algorithm>
#include <cmath>

namespace quintet {

namespace {

/// Square of how many times more one op does than another, as logarithms.
double distance(const Cost& one, const Cost& other) {
  double square = 0;
  for (const auto part : {&Cost::flops, &Cost::bytes, &Cost::exponentials})
    if (one.*part > 0 && other.*part > 0) {
      const double log = std::log(one.*part / other.*part);
      square += log * log;
    }
  return square;
}

}  // namespace

double OpTime::sum(const Cost& cost, double calls) const {
  return call * calls + flop * cost.flops + byte * cost.bytes + exponential * cost.exponentials;
}

double OpTime::of(const Cost& cost) const {
  constexpr double kAlike = 0.1;  // distances below it are noise
  double weights = 0, logs = 0;
  for (const Measured& call_like_it : measured) {
    const double away = kAlike + distance(call_like_it.cost, cost);
    weights += 1 / (away * away);
    logs += std::log(call_like_it.factor) / (away * away);
  }
  return sum(cost) * (weights > 0 ? std::exp(logs / weights) : 1);
}

void StepClock::op(std::string_view name, const Cost& cost) {
  const auto measured = machine_.ops.find(name);
  const double bytes = cost.bytes + machine_.score_passes * cost.score_bytes;
  const double seconds =
      measured != machine_.ops.end()
          ? measured->second.of(cost)
          : std::max({cost.flops / (machine_.flops * machine_.matmul_efficiency),
                      bytes / (machine_.memory_bytes * machine_.memory_efficiency),
                      machine_.op_seconds});
  now_ += seconds;
  compute_ += seconds;
  flops_ += cost.flops;
  auto total = ops_.find(name);
  if (total == ops_.end()) total = ops_.emplace(std::string(name), OpTotal{}).first;
  total->second.calls += 1;
  total->second.cost.flops += cost.flops;
  total->second.cost.bytes += cost.bytes;
  total->second.cost.exponentials += cost.exponentials;
}

void StepClock::host_work(double memory_bytes, double link_bytes_beside, double link_bytes_alone) {
  const double seconds = std::max(memory_bytes / machine_.host_memory_bytes,
                                  link_bytes_beside / machine_.host_link_bytes) +
                         link_bytes_alone / machine_.host_link_bytes;
  now_ += seconds;
  compute_ += seconds;
}

void StepClock::Queue::start(Transfer& transfer) {
  free = transfer.end = std::max(free, transfer.ready) + transfer.seconds;
}

void StepClock::Queue::start_background(double moment) {
  while (!background.empty() && std::max(free, background.front()->ready) < moment) {
    start(*background.front());
    background.pop_front();
  }
}

std::shared_ptr<StepClock::Transfer> StepClock::send(TransferTime time, Links links,
                                                     bool background) {
  const auto transfer = std::make_shared<Transfer>(Transfer{now_, time.seconds, links});
  Queue& queue = queue_of(links);
  if (background && time.busy == 0) {
    queue.background.push_back(transfer);
    return transfer;
  }
  queue.start_background(now_);
  queue.start(*transfer);
  if (time.busy > 0) wait_until(transfer->end - time.seconds + time.busy);
  return transfer;
}

void StepClock::wait(Transfer& transfer) {
  Queue& queue = queue_of(transfer.links);
  while (transfer.end < 0) {
    queue.start(*queue.background.front());
    queue.background.pop_front();
  }
  wait_until(transfer.end);
}

void StepClock::wait_until(double moment) {
  exposed_ += std::max(0.0, moment - now_);
  now_ = std::max(now_, moment);
}

void StepClock::reset() { *this = StepClock(std::move(machine_)); }

}  // namespace quintet
