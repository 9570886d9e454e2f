#pragma once
// All-gathered parameters (ZeRO-3): replicated, or as far as an op needs that, only while it runs. A
// step gathers in the order of the step before, so the next parameters are prefetched while ops
// compute, as many as the bytes allow; those of a layer in one collective.
//
//   GatherCache cache;             // of a trainer
//   cache.begin_step();
//   Tensor w = cache.take(parameter, layout);   // waits for it, starts the next
//   ...
//   cache.drop(std::move(w));
//   cache.end_step();
//
// Passes over the model that take turns (turns.h) share what is gathered: it stays until the last has taken
// it.

#include <deque>
#include <memory>

#include "runtime/base/execution_context.h"
#include "runtime/execution/parameter_layers.h"
#include "runtime/execution/reshard.h"

namespace quintet {

class GatherCache {
 public:
  /// Parameters of this thread's ops are taken from it.
  using Use = ContextMember<&ExecutionContext::gather_cache>;

  /// Four layers of T5 XXL in bfloat16 whose matrices are divided among 8 ranks.
  static constexpr int64_t kAheadBytes = int64_t{256} << 20;

  /// Prefetches up to `ahead_bytes`, or one parameter that is larger; of a layer a quarter of it at once.
  explicit GatherCache(int64_t ahead_bytes = kAheadBytes, ParameterLayers layers = {})
      : ahead_bytes_(ahead_bytes), layers_(std::move(layers)) {}

  /// Between them the order of the step before is followed; parameters keep their values. `turns`: how
  /// many passes take turns.
  void begin_step(size_t turns = 1);
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
    Route route;
    int64_t bytes;
  };
  /// What goes in one collective.
  struct Bundle {
    AsyncReshard moving;
    Tensors tensors;  // once somebody has waited
  };
  /// Gathered, or on the way.
  struct Gathered {
    std::shared_ptr<Bundle> bundle;
    size_t place;        // in it
    size_t to_come;      // turns that will take it
    Tensor tensor = {};  // once somebody has waited
    const Tensor& wait();
  };
  size_t furthest() const;
  size_t bundle_end(size_t begin) const;
  void start(size_t begin);
  void prefetch();
  void drop_from(size_t at);
  void count(int64_t bytes);

  int64_t ahead_bytes_;
  ParameterLayers layers_;
  std::vector<Request> order_;     // of the step before, as far as this step has followed it
  std::vector<size_t> at_;         // of each turn; empty between steps
  std::deque<Gathered> gathered_;  // of order_[first_] and those behind it
  size_t first_ = 0;
  int64_t live_ = 0, peak_ = 0;
};

}  // namespace quintet
