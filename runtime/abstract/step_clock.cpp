#include "runtime/abstract/step_clock.h"

#include <algorithm>

namespace quintet {

void StepClock::op(const Cost& cost) {
  work(cost.flops, cost.bytes + machine_.score_passes * cost.score_bytes);
}

void StepClock::work(double flops, double bytes) {
  const double seconds =
      std::max({flops / (machine_.flops * machine_.matmul_efficiency),
                bytes / (machine_.memory_bytes * machine_.memory_efficiency), machine_.op_seconds});
  now_ += seconds;
  compute_ += seconds;
  flops_ += flops;
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

std::shared_ptr<StepClock::Transfer> StepClock::send(double seconds, Links links, bool background) {
  const auto transfer = std::make_shared<Transfer>(Transfer{now_, seconds, links});
  Queue& queue = queue_of(links);
  if (background && machine_.overlap == 1) {
    queue.background.push_back(transfer);
    return transfer;
  }
  queue.start_background(now_);
  queue.start(*transfer);
  if (machine_.overlap < 1) wait_until(transfer->end - machine_.overlap * seconds);
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

void StepClock::reset() { *this = StepClock(machine_); }

}  // namespace quintet
