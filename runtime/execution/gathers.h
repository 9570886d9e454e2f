#pragma once
// Gathered parameters (ZeRO-3): replicated, or as far as an op needs that, only while it runs. The
// order of a step's gathers is that of the step before, so the next one is under way while an op
// computes.
//
//   Gathers gathers;               // of a trainer
//   gathers.begin_step();
//   Tensor w = gathers.take(parameter, layout);   // waits for it, starts the next
//   ...
//   gathers.drop(std::move(w));
//   gathers.end_step();

#include <optional>

#include "runtime/base/execution_context.h"
#include "runtime/execution/reshard.h"

namespace quintet {

class Gathers {
 public:
  /// Parameters of this thread's ops are taken from it.
  using Use = ContextMember<&ExecutionContext::gathers>;

  /// Between them the order of the step before is followed; parameters keep their values.
  void begin_step();
  void end_step();
  /// `parameter` in another layout. All ranks of the mesh take the same parameters in one order.
  Tensor take(const Tensor& parameter, const Layout& to);
  /// It has been used; its memory goes unless somebody else holds it.
  void drop(Tensor gathered);

  int64_t live_bytes() const { return live_; }
  int64_t peak_bytes() const { return peak_; }  // since the step began

 private:
  struct Wish {
    Tensor parameter;
    Layout to;
  };
  void start_next();
  void drop_ahead();
  void count(const Tensor& gathered);

  std::vector<Wish> order_;  // of the step before, as far as this step has followed it
  size_t at_ = 0;
  bool in_step_ = false;
  std::optional<AsyncReshard> ahead_;  // of order_[at_]
  int64_t live_ = 0, peak_ = 0;
};

}  // namespace quintet
