#pragma once
// The tape: ops append themselves while one is recording; backward() runs their gradients newest
// first and lets go of what each node saved as soon as it has been used.
//
//   Tape tape;
//   { Tape::Recording recording(tape); loss = model.loss(batch); }
//   tape.backward(loss);           // leaves now have .grad()

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/base/execution_context.h"
#include "runtime/execution/reshard_cache.h"
#include "runtime/op/op.h"

namespace quintet {

struct Node {
  const Op* op = nullptr;  // nullptr: what has a gradient of its own, or, without one, a reshard
  Tensors inputs, outputs;
  Attrs attrs;
  std::function<Tensors(const Node& node, const Tensors& grads)> gradient = {};
  bool exchanges = false;  // its gradient calls overlap_deferred_gradients()
  /// Inputs that the op wanted in another layout, where its gradient will want them too.
  std::vector<std::pair<Tensor, Layout>> wanted_again = {};
};

class GradientBuckets;

/// Results of the ops of a region that are products, in order: kept by its first run, taken by the next.
class KeptProducts {
 public:
  /// Ops of this thread keep or take theirs during its lifetime.
  using Use = ContextMember<&ExecutionContext::kept_products>;
  /// Whether it is one: of activations and parameters alone, each row for itself.
  static bool holds(const Op& op);

  void rerun() { is_first_run_ = false; }
  /// Of the next product, if the region runs again.
  std::optional<Tensors> take();
  void keep(const Tensors& outputs) {
    if (is_first_run_) outputs_.push_back(outputs);
  }

 private:
  std::deque<Tensors> outputs_;
  bool is_first_run_ = true;
};

class Tape {
 public:
  /// Ops of this thread append themselves to a tape during its lifetime (nullptr: to none).
  using Recording = ContextMember<&ExecutionContext::tape>;

  Tape() = default;
  /// backward() with these buckets follows: an op that makes a leaf's gradient already as it runs forward adds to what
  /// they have.
  explicit Tape(GradientBuckets& buckets) : buckets_(&buckets) {}

  void record(Node node) { nodes_.push_back(std::move(node)); }
  /// Those; nullptr: unknown.
  GradientBuckets* buckets() const { return buckets_; }

  /// Runs every gradient once and empties the tape. Leaves that need a gradient get it added to grad(), which is undefined
  /// after an exception. `loss`: a scalar. Throws Bug if it is not the result of a recorded op.
  void backward(const Tensor& loss);
  /// The same, but gradients of leaves go into buckets that other passes share; who owns them finishes
  /// them. `seed`: this rank's gradient of the loss.
  void backward(const Tensor& loss, GradientBuckets& buckets, float seed = 1);
  /// The same from several results with given gradients.
  void backward(const Tensors& results, const Tensors& grads);

  /// Resharded activations of the tape which records on this thread, or whose gradients or region (remat)
  /// run; nullptr: there is none.
  static ReshardCache* reshards();

 private:
  friend class Backward;
  friend Tensors remat(const std::function<Tensors(const Tensors&)>& region, const Tensors& inputs,
                       bool keeps_products);
  /// Gradients of `inputs` come back as they are, sums over ranks open; other leaves' go into the buckets.
  Tensors backward(const Tensors& results, const Tensors& grads, GradientBuckets& buckets,
                   const Tensors& inputs = {});

  GradientBuckets* buckets_ = nullptr;
  std::vector<Node> nodes_;
  ReshardCache reshards_;
};

/// For gradients: results of `op`, of which result i is the gradient of of[i]. Where its rule lets it add, it is
/// added, as it is computed, to what other nodes and earlier passes have given that tensor, unless ranks have summed
/// that already.
Tensors gradients(const Tensors& of, const Op& op, const Tensors& inputs, const Attrs& attrs = {},
                  const OutputMask& make = {});
/// For gradients: what other nodes have given `x`, in its layout, for an op that makes the sum with its own. Absent:
/// nothing, or in another layout, which is added later.
Tensor take_gradient(const Tensor& x);
/// For gradients: those of parameters `w`, some absent, by an op which makes nothing else. No other gradient depends
/// on them: where a collective follows backward() defers them until then, and these are absent.
Tensors parameter_gradients(const Tensors& w, const Op& op, const Tensors& inputs,
                            const Attrs& attrs = {}, const OutputMask& make = {});
Tensor parameter_gradient(const Tensor& w, const Op& op, const Tensors& inputs,
                          const Attrs& attrs = {});
/// For who has started a collective and would wait now: computes the deferred weight gradients, if
/// there are any, so that they overlap it.
void overlap_deferred_gradients();
/// The same where another collective follows soon: half of them.
void overlap_some_deferred_gradients();
/// For an op of a gradient that has its operands: what the next nodes' gradients gather starts.
void gather_ahead();

/// Runs `region(inputs)` without keeping what it computes; the backward pass runs it again (remat).
/// `region` must be a function of its inputs and of leaf parameters alone. `keeps_products`: what
/// activations times parameters gave is kept and not computed again, as jax.checkpoint does by its policy
/// dots_with_no_batch_dims_saveable; attention, norms and activations are.
Tensors remat(const std::function<Tensors(const Tensors&)>& region, const Tensors& inputs,
              bool keeps_products = false);

}  // namespace quintet
