#include "runtime/execution/tape.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "runtime/execution/gradient_buckets.h"
#include "runtime/execution/reshard.h"
#include "runtime/execution/turns.h"
#include "runtime/mesh/sharding.h"
#include "runtime/plan/plan_cache.h"

namespace quintet {
namespace {

// Deferred weight gradients hold their operands: so many at most.
constexpr size_t kMostDeferred = 4;

/// Gradients on their way, by the tensor they belong to. Sums over ranks stay open until all that the
/// tensor gets has arrived, so that one collective takes the sum; it is under way until the gradient is
/// used.
class Gradients {
 public:
  void add(const Tensor& tensor, Tensor grad) {
    Tensor& sum = grads_[tensor.id()].sum;
    if (sum && sum.layout() != grad.layout()) {
      sum = resharded(std::move(sum), tensor.layout());
      grad = resharded(std::move(grad), tensor.layout());
    }
    sum = sum.absent() ? std::move(grad)
                       : GradientBuckets::accumulate(std::move(sum), std::move(grad));
  }
  /// Nothing more is added.
  void complete(const Tensor& tensor) {
    const auto found = grads_.find(tensor.id());
    if (found == grads_.end() || found->second.sum.layout() == tensor.layout()) return;
    found->second.scattered = scatters(found->second.sum.layout(), tensor.layout());
    found->second.moving.emplace(std::move(found->second.sum), tensor.layout());
  }
  /// Whether it is being scattered over the ranks that made it: who uses it gathers again.
  bool is_scattered(const Tensor& tensor) const {
    const auto found = grads_.find(tensor.id());
    return found != grads_.end() && found->second.scattered;
  }
  /// Whether what there is will be, or is being, brought to the layout of `tensor`.
  bool moves(const Tensor& tensor) const {
    const auto found = grads_.find(tensor.id());
    if (found == grads_.end()) return false;
    return found->second.moving || found->second.sum.layout() != tensor.layout();
  }
  /// The gradient of `tensor`, in its layout.
  Tensor take(const Tensor& tensor) {
    const auto found = grads_.find(tensor.id());
    if (found == grads_.end()) return {};
    Arrived arrived = std::move(found->second);
    grads_.erase(found);
    if (!arrived.moving) return resharded(std::move(arrived.sum), tensor.layout());
    take_turn();
    return arrived.moving->wait();
  }
  /// The gradient of `tensor` in whatever layout it has.
  Tensor take_as_is(const Tensor& tensor) {
    const auto arrived = grads_.extract(tensor.id());
    return arrived.empty() ? Tensor() : std::move(arrived.mapped().sum);
  }

 private:
  struct Arrived {
    Tensor sum;
    std::optional<AsyncReshard> moving = {};
    bool scattered = false;
  };
  static bool scatters(const Layout& from, const Layout& to) {
    return std::ranges::any_of(from.partial, [&](const std::string& axis) {
      return std::ranges::any_of(
          to.dims, [&](const MeshAxes& axes) { return std::ranges::count(axes, axis) > 0; });
    });
  }
  std::unordered_map<const void*, Arrived> grads_;
};

}  // namespace

/// Gradients run while it lives.
class Backward {
 public:
  Backward(Tape& tape, const Tensors& inputs, GradientBuckets& buckets)
      : tape_(tape), buckets_(buckets) {
    for (const Tensor& input : inputs) inputs_.insert(input.id());
    for (const Node& node : tape.nodes_) {
      for (const Tensor& output : node.outputs) outputs_.insert(output.id());
      for (const Tensor& input : node.inputs) ++to_come_[input.id()];
      exchanges_ += node.exchanges ? 1 : 0;
    }
  }
  Backward(const Backward&) = delete;
  Backward& operator=(const Backward&) = delete;

  Tape& tape() { return tape_; }
  Gradients& pending() { return pending_; }
  /// One of the region's, which the tape's owner takes as they are.
  bool is_input(const Tensor& x) const { return inputs_.contains(x.id()); }
  bool is_leaf(const Tensor& x) const { return !outputs_.contains(x.id()) && !is_input(x); }
  void add(const Tensor& leaf, Tensor grad) {
    buckets_.add(leaf, std::move(grad), to_come_[leaf.id()]);
  }

  void begin(const Node& node) { exchanges_ -= node.exchanges ? 1 : 0; }
  /// The node's gradient of this input is there, or there is none. Whether it was the last.
  bool end(const Tensor& input) { return --to_come_[input.id()] == 0; }
  /// The node is done: nothing that runs now is left to hide its weight gradients behind, unless a
  /// gradient that it `moves`, a later exchange or gather is.
  void end_node(bool moves) {
    if (!moves && exchanges_ == 0 && !gathers_follow_) compute_deferred();
  }
  /// A gradient is on its way that is scattered, or is not.
  void overlap(bool is_scattered) {
    gathers_follow_ |= is_scattered;
    if (is_scattered)
      compute_some_deferred();
    else
      compute_deferred();
  }
  void gather_ahead() {
    const auto next =
        std::ranges::find_if(tape_.nodes_.rbegin(), tape_.nodes_.rend(),
                             [](const Node& node) { return !node.wanted_again.empty(); });
    if (next != tape_.nodes_.rend())
      for (const auto& [input, layout] : next->wanted_again)
        tape_.reshards_.prefetch(input, layout);
  }
  /// The gradient of what was computed again (remat).
  static Tensors of_region(const std::function<Tensors(const Tensors&)>& region, const Node& node,
                           const Tensors& grads, KeptProducts* products) {
    Backward& outer = *ExecutionContext::current().backward;
    Tape tape;
    Tensors inputs, outputs;
    {
      const Tape::Recording recording(tape);
      const KeptProducts::Use use(products);
      for (const Tensor& input : node.inputs) {
        inputs.push_back(input ? input.detach().set_needs_grad(input.needs_grad()) : Tensor());
        if (input) tape.reshards_.share(outer.tape_.reshards_, input, inputs.back());
      }
      outputs = region(inputs);
    }
    Tensors of_inputs = tape.backward(outputs, grads, outer.buckets_, inputs);
    outer.buckets_.end_region();
    return of_inputs;
  }

  /// Weight gradients of one op, deferred.
  struct Task {
    Tensors parameters;
    const Op* op;
    Tensors inputs;
    Attrs attrs;
    OutputMask make;
  };
  /// Whether it was. What it gathers is gathered now, in the order of other ranks.
  bool defer(Task task) {
    std::erase_if(task.parameters, [](const Tensor& w) { return w.absent(); });
    if (!has_ranks() ||
        !std::ranges::all_of(task.parameters, [this](const Tensor& w) { return is_leaf(w); }))
      return false;
    gather_operands(task);
    for (const Tensor& w : task.parameters) ++to_come_[w.id()];
    tasks_.push_back(std::move(task));
    if (tasks_.size() > kMostDeferred) compute_first();
    return true;
  }
  /// gradients()
  Tensors adding(const Tensors& of, const Op& op, const Tensors& inputs, const Attrs& attrs,
                 const OutputMask& make) {
    Tensors sums(op.rule.outputs.size());
    for (size_t i = 0; i < of.size(); ++i)
      if (op.rule.outputs[i].adds && of[i].needs_grad())
        sums[i] = is_leaf(of[i]) ? buckets_.take_sum(of[i]) : pending_.take_as_is(of[i]);
    Tensors grads = call_adding(op, inputs, attrs, make, sums);
    for (size_t i = 0; i < of.size(); ++i)
      if (sums[i]) return_sum(of[i], std::move(sums[i]));  // of another layout or dtype
    return grads;
  }
  void compute_deferred() {
    while (!tasks_.empty()) compute_first();
  }
  /// Half of them: another collective, which the others will hide, comes soon.
  void compute_some_deferred() {
    for (size_t left = tasks_.size() / 2; tasks_.size() > left;) compute_first();
  }

 private:
  void return_sum(const Tensor& x, Tensor sum) {
    is_leaf(x) ? buckets_.return_sum(x, std::move(sum)) : pending_.add(x, std::move(sum));
  }
  static bool has_ranks() {
    const Sharding* const sharding = ExecutionContext::current().sharding;
    return sharding != nullptr && sharding->ranks() != nullptr;
  }
  static void gather_operands(Task& task) {
    const auto shapes = quintet::bind(task.op->name, task.op->rule, task.inputs, task.attrs);
    const Plan& plan = planned(*task.op, task.inputs, shapes, task.attrs, task.make,
                               *ExecutionContext::current().sharding);
    for (size_t i = 0; i < task.inputs.size(); ++i)
      if (task.inputs[i] && task.inputs[i].layout() != plan.inputs[i])
        task.inputs[i] = resharded_activation(task.inputs[i], plan.inputs[i]);
  }
  void compute_first() {
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    const Tape::Recording paused(nullptr);
    Tensors grads = adding(task.parameters, *task.op, task.inputs, task.attrs, task.make);
    for (size_t i = 0; i < task.parameters.size(); ++i) {
      end(task.parameters[i]);
      add(task.parameters[i], std::move(grads[i]));
    }
  }

  Tape& tape_;
  GradientBuckets& buckets_;
  Gradients pending_;
  std::unordered_set<const void*> outputs_, inputs_;
  std::unordered_map<const void*, int64_t>
      to_come_;                  // gradients that nodes and tasks may still give
  int64_t exchanges_ = 0;        // still to come
  bool gathers_follow_ = false;  // gradients are scattered, and gathered by who uses them
  std::deque<Task> tasks_;
};

ReshardCache* Tape::reshards() {
  const ExecutionContext& context = ExecutionContext::current();
  if (context.tape != nullptr) return &context.tape->reshards_;
  if (context.region_of != nullptr) return &context.region_of->reshards_;
  return context.backward != nullptr ? &context.backward->tape().reshards_ : nullptr;
}

void Tape::backward(const Tensor& loss) { backward({loss}, {Tensor::scalar(1)}); }
void Tape::backward(const Tensor& loss, GradientBuckets& buckets, float seed) {
  backward({loss}, {Tensor::scalar(seed)}, buckets);
}

void Tape::backward(const Tensors& results, const Tensors& grads) {
  GradientBuckets buckets;
  backward(results, grads, buckets);
  buckets.finish();
}

Tensors Tape::backward(const Tensors& results, const Tensors& grads, GradientBuckets& buckets,
                       const Tensors& inputs) {
  QT_ASSERT(buckets_ == nullptr || buckets_ == &buckets);
  reshards_.end_recording();
  Backward running(*this, inputs, buckets);
  ExecutionContext context = ExecutionContext::current();
  context.tape = context.region_of = nullptr;
  context.backward = &running;
  const ContextScope scope(context);
  Gradients& pending = running.pending();
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i] && grads[i]) pending.add(results[i], grads[i]);
  while (!nodes_.empty()) {
    Node node = std::move(nodes_.back());
    nodes_.pop_back();
    running.begin(node);
    Tensors arrived;
    for (const Tensor& output : node.outputs) {
      if (pending.moves(output)) running.overlap(pending.is_scattered(output));
      arrived.push_back(pending.take(output));
    }
    Tensors sent(node.inputs.size());
    if (std::any_of(arrived.begin(), arrived.end(), [](const Tensor& g) { return !g.absent(); }))
      sent = node.op != nullptr         ? node.op->vjp(node, arrived)
             : node.gradient != nullptr ? node.gradient(node, arrived)
                                        : std::move(arrived);  // reshard
    QT_ASSERT(sent.size() == node.inputs.size());
    bool moves = false;
    for (size_t i = 0; i < sent.size(); ++i) {
      const Tensor& input = node.inputs[i];
      const bool is_last = running.end(input);
      const bool is_leaf = running.is_leaf(input);
      if (input.needs_grad() && !sent[i].absent()) {
        if (is_leaf)
          running.add(input, std::move(sent[i]));
        else
          pending.add(input, std::move(sent[i]));
      }
      if (is_leaf) continue;
      if (is_last && !running.is_input(input)) pending.complete(input);
      moves |= pending.moves(input);
    }
    running.end_node(moves);
  }
  running.compute_deferred();
  reshards_ = {};
  Tensors of_inputs;
  for (const Tensor& input : inputs)
    of_inputs.push_back(input ? pending.take_as_is(input) : Tensor());
  return of_inputs;
}

Tensors gradients(const Tensors& of, const Op& op, const Tensors& inputs, const Attrs& attrs,
                  const OutputMask& make) {
  Backward* const backward = ExecutionContext::current().backward;
  return backward == nullptr ? call(op, inputs, attrs, make)
                             : backward->adding(of, op, inputs, attrs, make);
}

Tensor take_gradient(const Tensor& x) {
  Backward* const backward = ExecutionContext::current().backward;
  if (backward == nullptr) return {};
  Tensor before = backward->pending().take_as_is(x);
  if (!before || before.layout() == x.layout()) return before;
  backward->pending().add(x, std::move(before));
  return {};
}

Tensors parameter_gradients(const Tensors& w, const Op& op, const Tensors& inputs,
                            const Attrs& attrs, const OutputMask& make) {
  Backward* const backward = ExecutionContext::current().backward;
  if (backward != nullptr && backward->defer({w, &op, inputs, attrs, make}))
    return Tensors(w.size());
  return gradients(w, op, inputs, attrs, make);
}

Tensor parameter_gradient(const Tensor& w, const Op& op, const Tensors& inputs,
                          const Attrs& attrs) {
  return parameter_gradients({w}, op, inputs, attrs, {true})[0];
}

void overlap_deferred_gradients() {
  if (Backward* const backward = ExecutionContext::current().backward; backward != nullptr)
    backward->compute_deferred();
}

void overlap_some_deferred_gradients() {
  if (Backward* const backward = ExecutionContext::current().backward; backward != nullptr)
    backward->compute_some_deferred();
}

void gather_ahead() {
  if (ExecutionContext::current().in_backward())
    ExecutionContext::current().backward->gather_ahead();
}

bool KeptProducts::holds(const Op& op) {
  for (const std::string_view name : {"matmul", "matmul_t", "batched_matmul", "matmul_fp8", "mlp"})
    if (op.name == name) return true;
  return false;
}

std::optional<Tensors> KeptProducts::take() {
  if (is_first_run_) return std::nullopt;
  QT_ASSERT(!outputs_.empty());  // a region has the same products when it runs again
  Tensors outputs;
  for (const Tensor& t : outputs_.front()) outputs.push_back(t ? t.detach() : Tensor());
  outputs_.pop_front();
  return outputs;
}

Tensors remat(const std::function<Tensors(const Tensors&)>& region, const Tensors& inputs,
              bool keeps_products) {
  Tape* tape = ExecutionContext::current().tape;
  if (tape == nullptr) return region(inputs);
  const auto products = keeps_products ? std::make_shared<KeptProducts>() : nullptr;
  Tensors outputs;
  {
    for (const Tensor& input : inputs)
      if (input) tape->reshards_.note_input(input);
    ExecutionContext context = ExecutionContext::current();
    context.tape = nullptr;
    context.region_of = tape;
    context.kept_products = products.get();
    const ContextScope scope(context);
    outputs = region(inputs);
  }
  if (products) products->rerun();
  for (Tensor& output : outputs)
    if (output) output.set_needs_grad(true);
  tape->record({nullptr, inputs, outputs, {}, [=](const Node& node, const Tensors& grads) {
                  return Backward::of_region(region, node, grads, products.get());
                }});
  return outputs;
}

}  // namespace quintet
