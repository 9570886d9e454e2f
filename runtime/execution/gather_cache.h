#pragma once
// All-gathered parameters (ZeRO-3): replicated, or as far as an op needs that, only while it runs. A
// step gathers in the order of the step before, so the next parameters are prefetched while ops
// compute, as many as the bytes allow.
//
//   GatherCache cache;             // of a trainer
//   cache.begin_step();
//   Tensor w = cache.take(parameter, layout);   // waits for it, starts the next
//   ...
//   cache.drop(std::move(w));
//   cache.end_step();

#include <deque>

#include "runtime/base/execution_context.h"
#include "runtime/execution/reshard.h"

namespace quintet {

class GatherCache {
 public:
  /// Parameters of this thread's ops are taken from it.
  using Use = ContextMember<&ExecutionContext::gather_cache>;

  /// Two layers of T5 XXL in bfloat16 whose matrices are divided among 8 ranks.
  static constexpr int64_t kAheadBytes = int64_t{96} << 20;

  /// Prefetches up to `ahead_bytes`, or one parameter that is larger.
  explicit GatherCache(int64_t ahead_bytes = kAheadBytes) : ahead_bytes_(ahead_bytes) {}

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
  struct Request {
    Tensor parameter;
    Layout to;
    int64_t bytes;
  };
  void prefetch();
  void drop_prefetched();
  void count(int64_t bytes);

  int64_t ahead_bytes_;
  std::vector<Request> order_;  // of the step before, as far as this step has followed it
  size_t at_ = 0;
  bool in_step_ = false;
  std::deque<AsyncReshard> prefetched_;  // of order_[at_] and those behind it
  int64_t prefetched_bytes_ = 0, live_ = 0, peak_ = 0;
};

}  // namespace quintet
