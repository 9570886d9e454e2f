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
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/execution_context.h"
#include "runtime/op/op.h"

namespace quintet {

/// Seconds that an op was measured to take: of a call, and of each of what it does. Their sum is never quite right (a
/// product of few columns is slower a multiplication than one of many): it is corrected as measured calls were that
/// did about as much.
struct OpTime {
  double call = 0, flop = 0, byte = 0, exponential = 0;
  struct Measured {
    Cost cost;          // of a call
    double factor = 1;  // what it took / the sum
  };
  std::vector<Measured> measured = {};

  double sum(const Cost& cost, double calls = 1) const;
  /// Of one call.
  double of(const Cost& cost) const;
};

using OpTimes = std::map<std::string, OpTime, std::less<>>;

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
  double host_link_bytes = 0;    // a second, between the device and its host's memory; 0: not known
  double host_memory_bytes = 0;  // a second, of the host's memory, the device's share
  OpTimes ops = {};              // measured; of others, the above
};

/// Seconds of a collective.
struct TransferTime {
  double seconds = 0;
  double busy = 0;  // of them, in which no op can run beside it

  TransferTime(double all, double not_hidden = 0) : seconds(all), busy(not_hidden) {}  // NOLINT
};

/// What a collective travels on.
enum class Links { within_host, between_hosts };

class StepClock {
 public:
  explicit StepClock(Machine machine) : machine_(std::move(machine)) {}

  using Use = ContextMember<&ExecutionContext::clock>;

  /// An op, or other work of the device: "optimizer", "copy".
  void op(std::string_view name, const Cost& cost);
  /// Work of the host, for which the device waits: bytes of the host's memory, bytes over the link in one direction beside
  /// that work, and bytes over the link before or behind it.
  void host_work(double memory_bytes, double link_bytes_beside, double link_bytes_alone);
  struct Transfer {
    double ready, seconds;  // it may start then; it takes so long
    Links links;
    double end = -1;  // -1: not known yet, others may still overtake it
  };
  /// A collective, which starts once its links are free. What cannot overlap ops is waited for here.
  std::shared_ptr<Transfer> send(TransferTime time, Links links, bool background);
  /// Nothing goes on before it has ended.
  void wait(Transfer& transfer);
  /// A new step.
  void reset();

  double seconds() const { return now_; }
  double compute() const { return compute_; }
  double exposed() const { return exposed_; }  // waited for collectives
  double flops() const { return flops_; }
  struct OpTotal {
    int64_t calls = 0;
    Cost cost = {};
  };
  const std::map<std::string, OpTotal, std::less<>>& ops() const { return ops_; }

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
  std::map<std::string, OpTotal, std::less<>> ops_;
};

}  // namespace quintet
