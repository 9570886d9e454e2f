#pragma once
// What a step does, op by op: where the planner lets each op run, the layouts of its operands and
// results, and every change of layout with the bytes that a rank sends. Filled by call() and resharded()
// of the thread for which it is current; on an abstract device (abstract_device.h) without computing.
//
//   StepLog log;
//   { const StepLog::Use use(log); trainer.train(batch); }
//   fmt::print("{}{}", log.text(), log.totals());

#include <map>

#include "runtime/base/execution_context.h"
#include "runtime/mesh/reshard_plan.h"
#include "runtime/plan/plan.h"

namespace quintet {

class StepLog {
 public:
  using Use = ContextMember<&ExecutionContext::log>;

  struct Sent {
    int64_t calls = 0, bytes = 0;
    bool operator==(const Sent&) const = default;
  };
  using Table = std::map<std::pair<std::string, std::string>, Sent>;  // {collective, "data,model"}

  /// How a tensor is called from now on.
  void name(const Tensor& tensor, std::string name) { names_[tensor.id()] = std::move(name); }
  /// A heading.
  void section(std::string_view title);
  void op(const Op& what, const Tensors& operands, const Tensors& results, const Plan& plan);
  /// `to`: of the array after the step, where that is not `from`'s.
  void reshard(const Tensor& from, const ReshardStep& step, const Spec* to = nullptr);
  /// Of several arrays in one collective, each with its step.
  void reshard(const Tensors& from, std::span<const ReshardStep> steps);
  /// An all-reduce of `bytes` of statistics, of which this rank sends `sent`.
  void statistics(const std::vector<std::string>& axes, int64_t bytes, int64_t sent);

  const std::string& text() const { return text_; }
  const Table& sent() const { return sent_; }
  /// The table of all collectives, for people.
  std::string totals() const;

 private:
  void count(const ReshardStep& step, int64_t bytes);
  std::string describe(const Tensor& tensor) const;

  std::map<const void*, std::string> names_;
  std::string text_;
  Table sent_;
};

}  // namespace quintet
