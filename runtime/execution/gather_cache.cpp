#include "runtime/execution/gather_cache.h"

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
  if (known && prefetched_) {
    gathered = prefetched_->wait();
    prefetched_.reset();
  } else {
    drop_prefetched();
    gathered = resharded(parameter, to);
    count(gathered);
  }
  if (!in_step_) return gathered;
  if (!known) {
    order_.resize(at_);
    order_.push_back({parameter, to});
  }
  ++at_;
  prefetch_next();
  return gathered;
}

void GatherCache::prefetch_next() {
  if (at_ >= order_.size()) return;
  prefetched_ = AsyncReshard::start(order_[at_].parameter, order_[at_].to);
  if (prefetched_) count(prefetched_->result());
}

void GatherCache::drop_prefetched() {
  if (prefetched_) drop(prefetched_->wait());
  prefetched_.reset();
}

void GatherCache::count(const Tensor& gathered) {
  live_ += gathered.bytes();
  peak_ = std::max(peak_, live_);
}

void GatherCache::drop(Tensor gathered) { live_ -= gathered.bytes(); }

}  // namespace quintet
