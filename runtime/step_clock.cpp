#include "runtime/step_clock.h"

#include <algorithm>

namespace quintet {
namespace {

thread_local StepClock* current_clock = nullptr;

double elements(const View& view) { return static_cast<double>(view.elements()); }
double last(const View& view) { return static_cast<double>(view.sizes[view.rank - 1]); }

double bytes(Views views) {
  double sum = 0;
  for (const View& view : views)
    if (!view.absent()) sum += elements(view) * static_cast<double>(size_of(view.dtype));
  return sum;
}

/// Of attention's scores [batch, heads, queries, keys], if they were kept; a gradient's twice.
double score_bytes(std::string_view op, Views in, Views out) {
  const bool forward = op == "attention";
  if (!forward && op != "attention_grad") return 0;
  const View& logsumexp = forward ? out[1] : in[8];  // [batch, heads, queries]
  if (logsumexp.absent()) return 0;
  return (forward ? 1 : 2) * elements(logsumexp) * static_cast<double>(in[1].sizes[1]) *
         static_cast<double>(size_of(in[0].dtype));
}

}  // namespace

double flops_of(std::string_view op, Views in, Views out) {
  const auto there = [](const View& view) { return view.absent() ? 0.0 : 1.0; };
  if (op == "matmul" || op == "matmul_t") return 2 * elements(in[0]) * last(out[0]);
  if (op == "matmul_grad_w") return 2 * elements(in[0]) * last(in[1]);
  if (op == "mlp_in") return 2 * elements(in[0]) * last(in[1]) * (1 + there(in[2]));
  if (op == "mlp" || op == "mlp_grad") {  // the gradients of x and of each wi, and of y
    const double first = elements(in[0]) * (1 + there(in[2])),
                 second = elements(op == "mlp" ? out[0] : in[6]);
    return 2 * last(in[1]) * ((op == "mlp" ? 1 : 2) * first + second);
  }
  if (op == "attention" || op == "attention_grad")  // scores and their use; two gradients of each
    return (op == "attention" ? 4 : 8) * elements(in[0]) * static_cast<double>(in[1].sizes[1]);
  if (op.starts_with("cross_entropy")) {
    const bool transposed = op.starts_with("cross_entropy_t");
    const double v = static_cast<double>(in[1].sizes[transposed ? 0 : 1]);
    const bool again = op.ends_with("_apply");  // the logits of the phase before
    const double gradients = out.size() > 5 ? there(out[4]) + there(out[5]) : 0;
    return 2 * elements(in[0]) * v * ((again ? 0 : 1) + gradients);
  }
  if (op == "route") return 2 * elements(in[0]) * last(in[1]);
  if (op == "route_grad") return 4 * elements(in[0]) * last(in[1]);
  // Of packed rows, each through one expert.
  if (op == "experts_in") return 2 * elements(in[0]) * last(out[0]) * (1 + there(in[3]));
  if (op == "experts_in_grad")
    return 2 * elements(in[0]) * last(in[4]) * (1 + there(in[3])) * (there(out[0]) + there(out[1]));
  if (op == "grouped_matmul" || op == "grouped_matmul_t") return 2 * elements(in[0]) * last(out[0]);
  if (op == "grouped_matmul_grad_w") return 2 * elements(in[0]) * last(in[2]);
  return 0;
}

StepClock* StepClock::current() { return current_clock; }
StepClock::Use::Use(StepClock& clock) : previous_(current_clock) { current_clock = &clock; }
StepClock::Use::~Use() { current_clock = previous_; }

void StepClock::op(const Op& op, Views in, Views out) {
  work(flops_of(op.name, in, out),
       bytes(in) + bytes(out) + machine_.score_passes * score_bytes(op.name, in, out));
}

void StepClock::work(double flops, double bytes) {
  const double seconds =
      std::max({flops / (machine_.flops * machine_.matmul_efficiency),
                bytes / (machine_.memory_bytes * machine_.memory_efficiency), machine_.op_seconds});
  now_ += seconds;
  compute_ += seconds;
  flops_ += flops;
}

double StepClock::send(double seconds) {
  const double start = std::max(links_free_, now_);
  links_free_ = start + seconds;
  sending_ += seconds;
  if (machine_.overlap < 1) wait(start + (1 - machine_.overlap) * seconds);
  return links_free_;
}

void StepClock::wait(double moment) {
  exposed_ += std::max(0.0, moment - now_);
  now_ = std::max(now_, moment);
}

void StepClock::reset() { *this = StepClock(machine_); }

}  // namespace quintet
