#pragma once
// The tape: ops append themselves while one is recording; backward() runs their gradients newest
// first and lets go of what each node saved as soon as it has been used.
//
//   Tape tape;
//   { Tape::Recording recording(tape); loss = model.loss(batch); }
//   tape.backward(loss);           // leaves now have .grad()

#include <functional>
#include <vector>

#include "runtime/op/op.h"

namespace quintet {

struct Node {
  const Op* op = nullptr;  // nullptr: what has a gradient of its own, or, without one, a reshard
  Tensors inputs, outputs;
  Attrs attrs;
  std::function<Tensors(const Node& node, const Tensors& grads)> gradient = {};
  bool exchanges = false;  // its gradient calls compute_while_waiting()
};

class Tape {
 public:
  /// The tape that records on this thread; nullptr while serving or evaluating.
  static Tape* current();
  /// Whether this thread runs gradients: sums over ranks may then stay open, the tape takes them.
  static bool in_backward();

  /// Makes `tape` current for its own lifetime (nullptr: pauses recording).
  class Recording {
   public:
    explicit Recording(Tape* tape);
    explicit Recording(Tape& tape) : Recording(&tape) {}
    ~Recording();
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

   private:
    Tape* previous_;
  };

  void record(Node node) { nodes_.push_back(std::move(node)); }

  /// Runs every gradient once and empties the tape. Leaves that need a gradient get it added to
  /// grad(). `loss`: a scalar. Throws Bug if it is not the result of a recorded op.
  void backward(const Tensor& loss);
  /// The same from several results with given gradients.
  void backward(const Tensors& results, const Tensors& grads);

 private:
  std::vector<Node> nodes_;
};

/// For gradients: that of parameter `w`, by an op which makes nothing else. Nothing else waits for it:
/// where an exchange of rows lies ahead backward() puts it off until then, and this is absent.
Tensor parameter_gradient(const Tensor& w, const Op& op, const Tensors& inputs,
                          const Attrs& attrs = {});
/// For who has started a collective and would wait now: computes what has been put off, if anything.
void compute_while_waiting();

/// Runs `region(inputs)` without keeping what it computes; the backward pass runs it again (remat).
/// `region` must be a function of its inputs and of leaf parameters alone.
Tensors remat(const std::function<Tensors(const Tensors&)>& region, const Tensors& inputs);

}  // namespace quintet
