#pragma once
// The time of a simulated step: ops take turns on a rank's device, collectives on the links that they
// use, those within a host beside those between hosts, and of several that could start those in the
// background last; an op that needs what a collective brings waits for it. Since a simulated step
// starts and awaits collectives where a real one does, what is hidden behind ops and what is not follows
// from it.
//
//   StepClock clock(machine);
//   { const StepClock::Use use(clock); trainer.train(batch); }
//   clock.seconds(), clock.exposed(), clock.flops()

#include <array>
#include <deque>
#include <memory>

#include "runtime/base/execution_context.h"
#include "runtime/op/op.h"

namespace quintet {

/// One device and its links, as on its data sheet, and the part of it that is reached.
struct Machine {
  double flops = 1e12;           // a second, of the dtype that the model computes in
  double matmul_efficiency = 1;  // reached part of it
  double memory_bytes = 1e12;    // a second
  double memory_efficiency = 1;
  double op_seconds = 0;  // of an op however small
  /// How often attention reads or writes its scores in memory, a gradient twice as often; 0: a fused
  /// kernel keeps them.
  double score_passes = 0;
  double overlap = 1;  // part of a collective's time that ops can hide
};

/// What a collective travels on.
enum class Links { within_host, between_hosts };

class StepClock {
 public:
  explicit StepClock(const Machine& machine) : machine_(machine) {}

  using Use = ContextMember<&ExecutionContext::clock>;

  void op(const Cost& cost);
  /// Work outside of ops.
  void work(double flops, double bytes);
  struct Transfer {
    double ready, seconds;  // it may start then; it takes so long
    Links links;
    double end = -1;  // -1: not known yet, others may still overtake it
  };
  /// A collective, which starts once its links are free. What cannot overlap ops is waited for here.
  std::shared_ptr<Transfer> send(double seconds, Links links, bool background);
  /// Nothing goes on before it has ended.
  void wait(Transfer& transfer);
  /// A new step.
  void reset();

  double seconds() const { return now_; }
  double compute() const { return compute_; }
  double exposed() const { return exposed_; }  // waited for collectives
  double flops() const { return flops_; }

 private:
  struct Queue {
    double free = 0;  // when the links are
    std::deque<std::shared_ptr<Transfer>> background;
    void start(Transfer& transfer);
    /// Those in the background that start before `moment`.
    void start_background(double moment);
  };
  Queue& queue_of(Links links) { return queues_[static_cast<size_t>(links)]; }
  void wait_until(double moment);

  Machine machine_;
  std::array<Queue, 2> queues_;
  double now_ = 0, compute_ = 0, exposed_ = 0, flops_ = 0;
};

}  // namespace quintet
