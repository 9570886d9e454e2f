#include "runtime/execution/gather_cache.h"

#include <algorithm>

namespace quintet {

void GatherCache::begin_step() {
  drop_prefetched();
  at_ = 0;
  peak_ = live_;
  in_step_ = true;
}

void GatherCache::end_step() {
  drop_prefetched();
  order_.resize(at_);
  in_step_ = false;
}

Tensor GatherCache::take(const Tensor& parameter, const Layout& to) {
  const bool known = in_step_ && at_ < order_.size() &&
                     order_[at_].parameter.id() == parameter.id() && order_[at_].to == to;
  Tensor gathered;
  if (known && !prefetched_.empty()) {
    gathered = prefetched_.front().wait();
    prefetched_.pop_front();
    prefetched_bytes_ -= gathered.bytes();
  } else {
    drop_prefetched();
    gathered = resharded(parameter, to);
    count(gathered.bytes());
  }
  if (!in_step_) return gathered;
  if (!known) {
    order_.resize(at_);
    order_.push_back({parameter, to, gathered.bytes()});
  }
  ++at_;
  prefetch();
  return gathered;
}

void GatherCache::prefetch() {
  for (size_t next = at_ + prefetched_.size(); next < order_.size(); ++next) {
    const auto& [parameter, to, bytes] = order_[next];
    if (!prefetched_.empty() && prefetched_bytes_ + bytes > ahead_bytes_) return;
    prefetched_.emplace_back(parameter, to);
    prefetched_bytes_ += bytes;
    count(bytes);
  }
}

void GatherCache::drop_prefetched() {
  for (AsyncReshard& gathered : prefetched_) drop(gathered.wait());
  prefetched_.clear();
  prefetched_bytes_ = 0;
}

void GatherCache::count(int64_t bytes) {
  live_ += bytes;
  peak_ = std::max(peak_, live_);
}

void GatherCache::drop(Tensor gathered) { live_ -= gathered.bytes(); }

}  // namespace quintet
