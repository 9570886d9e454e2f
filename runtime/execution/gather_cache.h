#pragma once
// All-gathered parameters (ZeRO-3): replicated, or as far as an op needs that, only while it runs. A
// step gathers in the order of the step before, so the next parameter is prefetched while an op
// computes.
//
//   GatherCache cache;             // of a trainer
//   cache.begin_step();
//   Tensor w = cache.take(parameter, layout);   // waits for it, starts the next
//   ...
//   cache.drop(std::move(w));
//   cache.end_step();

#include <optional>

#include "runtime/base/execution_context.h"
#include "runtime/execution/reshard.h"

namespace quintet {

class GatherCache {
 public:
  /// Parameters of this thread's ops are taken from it.
  using Use = ContextMember<&ExecutionContext::gather_cache>;

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
  struct PrefetchRequest {
    Tensor parameter;
    Layout to;
  };
  void prefetch_next();
  void drop_prefetched();
  void count(const Tensor& gathered);

  std::vector<PrefetchRequest> order_;  // of the step before, as far as this step has followed it
  size_t at_ = 0;
  bool in_step_ = false;
  std::optional<AsyncReshard> prefetched_;  // of order_[at_]
  int64_t live_ = 0, peak_ = 0;
};

}  // namespace quintet
