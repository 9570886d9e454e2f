#include "runtime/profile/step_log.h"

namespace quintet {

void StepLog::section(std::string_view title) { text_ += fmt::format("{}:\n", title); }

std::string StepLog::describe(const Tensor& tensor) const {
  const auto named = names_.find(tensor.id());
  return (named == names_.end() ? "" : named->second + " ") +
         to_string(tensor.spec(), tensor.layout());
}

void StepLog::op(const Op& what, const Tensors& operands, const Tensors& results,
                 const Plan& plan) {
  const auto list = [&](const Tensors& tensors) {
    std::string all;
    for (const Tensor& tensor : tensors)
      if (tensor) all += (all.empty() ? "" : "; ") + describe(tensor);
    return all;
  };
  const std::string work = to_string(plan);
  text_ +=
      fmt::format("{} ({})\n    {}\n    -> {}\n", what.name,
                  work.empty() ? "the same on every rank" : work, list(operands), list(results));
}

void StepLog::reshard(const Tensor& from, const ReshardStep& step, const Spec* to) {
  if (step.kind == ReshardKind::kSlice) return;
  count(step, step.bytes);
  text_ += fmt::format("    {:<14} over {:<11} {:>13} bytes: {} -> {}\n", name_of(step.kind),
                       fmt::join(step.axes, ","), step.bytes, describe(from),
                       to_string(to == nullptr ? from.spec() : *to, step.after));
}

void StepLog::reshard(const Tensors& from, std::span<const ReshardStep> steps) {
  if (from.size() == 1) return reshard(from[0], steps[0]);
  if (steps[0].kind == ReshardKind::kSlice) return;
  int64_t bytes = 0;
  for (const ReshardStep& step : steps) bytes += step.bytes;
  count(steps[0], bytes);
  text_ += fmt::format("    {:<14} over {:<11} {:>13} bytes of {} arrays:\n",
                       name_of(steps[0].kind), fmt::join(steps[0].axes, ","), bytes, from.size());
  for (size_t i = 0; i < from.size(); ++i)
    text_ += fmt::format("      {} -> {}\n", describe(from[i]),
                         to_string(from[i].spec(), steps[i].after));
}

void StepLog::count(const ReshardStep& step, int64_t bytes) {
  Sent& sent =
      sent_[{std::string(name_of(step.kind)), fmt::format("{}", fmt::join(step.axes, ","))}];
  ++sent.calls;
  sent.bytes += bytes;
}

void StepLog::statistics(const std::vector<std::string>& axes, int64_t bytes, int64_t sent) {
  const std::string over = fmt::format("{}", fmt::join(axes, ","));
  Sent& entry = sent_[{std::string(name_of(ReshardKind::kAllReduce)), over}];
  ++entry.calls;
  entry.bytes += sent;
  text_ += fmt::format("    {:<14} over {:<11} {:>13} bytes: {} numbers\n",
                       name_of(ReshardKind::kAllReduce), over, sent, bytes / size_of(DType::f64));
}

std::string StepLog::totals() const {
  std::string text =
      fmt::format("{:<14}  {:<12}{:>8}{:>16}\n", "collective", "over", "calls", "bytes a rank");
  for (const auto& [what, sent] : sent_)
    text +=
        fmt::format("{:<14}  {:<12}{:>8}{:>16}\n", what.first, what.second, sent.calls, sent.bytes);
  return text;
}

}  // namespace quintet
