#pragma once
// The time of a simulated step: ops take turns on a rank's device, collectives on its links; an op
// that needs what a collective brings waits for it. Since a simulated step starts and awaits
// collectives where a real one does, what is hidden behind ops and what is not follows from it.
//
//   StepClock clock(machine);
//   { const StepClock::Use use(clock); trainer.train(batch); }
//   clock.seconds(), clock.exposed(), clock.flops()

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

class StepClock {
 public:
  explicit StepClock(const Machine& machine) : machine_(machine) {}

  using Use = ContextMember<&ExecutionContext::clock>;

  void op(const Cost& cost);
  /// Work outside of ops.
  void work(double flops, double bytes);
  /// A collective starts once the links are free; the moment when it ends. What cannot overlap ops
  /// is waited for here.
  double send(double seconds);
  /// Nothing goes on before that moment.
  void wait(double moment);
  /// A new step.
  void reset();

  double seconds() const { return now_; }
  double compute() const { return compute_; }
  double exposed() const { return exposed_; }  // waited for collectives
  double sending() const { return sending_; }  // the links were busy
  double flops() const { return flops_; }

 private:
  Machine machine_;
  double now_ = 0, links_free_ = 0, compute_ = 0, exposed_ = 0, sending_ = 0, flops_ = 0;
};

}  // namespace quintet
