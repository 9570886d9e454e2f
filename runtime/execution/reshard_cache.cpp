#include "runtime/execution/reshard_cache.h"

#include <algorithm>

#include "runtime/execution/tape.h"
#include "runtime/execution/turns.h"

namespace quintet {

const Tensor* ReshardCache::find(const Tensor& x, const Layout& to) const {
  const auto is = [&](const Entry& entry) {
    return entry.from.id() == x.id() && entry.to.layout() == to;
  };
  if (last_.from && is(last_)) return &last_.to;
  const auto kept = std::ranges::find_if(kept_, is);
  return kept == kept_.end() ? nullptr : &kept->to;
}

Tensor ReshardCache::take(const Tensor& x, const Layout& to, bool records) {
  std::erase_if(kept_, [](const Entry& entry) { return entry.from.unique(); });
  if (const Tensor* there = find(x, to)) return *there;
  last_ = {};  // its memory goes before there is more
  Entry entry{x, move(x, to)};
  const bool again =
      std::ranges::any_of(seen_, [&](const Tensor& seen) { return seen.id() == x.id(); });
  if (again) {
    kept_.push_back(entry);
    return entry.to;
  }
  if (records) seen_.push_back(x);
  last_ = entry;
  return entry.to;
}

std::deque<ReshardCache::Moving>::iterator ReshardCache::under_way(const Tensor& x,
                                                                   const Layout& to) {
  return std::ranges::find_if(ahead_, [&](const Moving& moving) {
    return moving.from.id() == x.id() && moving.layout == to;
  });
}

Tensor ReshardCache::move(const Tensor& x, const Layout& to) {
  const auto ahead = under_way(x, to);
  if (ahead != ahead_.end()) {
    AsyncReshard moving = std::move(ahead->reshard);
    ahead_.erase(ahead);
    return moving.wait();
  }
  if (!ExecutionContext::current().in_backward()) return resharded(x, to);
  AsyncReshard moving(x, to);
  overlap_some_deferred_gradients();
  take_turn();
  return moving.wait();
}

void ReshardCache::prefetch(const Tensor& x, const Layout& to) {
  if (under_way(x, to) == ahead_.end() && find(x, to) == nullptr)
    ahead_.push_back({x, to, AsyncReshard(x, to)});
}

void ReshardCache::share(const ReshardCache& outer, const Tensor& x, const Tensor& same) {
  for (const Entry& entry : outer.kept_)
    if (entry.from.id() == x.id()) kept_.push_back({same, entry.to});
}

Tensor resharded_activation(const Tensor& x, const Layout& to) {
  ReshardCache* const reshards = Tape::reshards();
  if (reshards == nullptr) return resharded(x, to);
  return reshards->take(x, to, ExecutionContext::current().tape != nullptr);
}

}  // namespace quintet
