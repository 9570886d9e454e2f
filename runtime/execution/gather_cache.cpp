#include "runtime/execution/gather_cache.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace quintet {

void GatherCache::begin_step(size_t turns) {
  drop_from(first_);
  at_.assign(turns, 0);
  first_ = 0;
  peak_ = live_;
}

void GatherCache::end_step() {
  drop_from(first_);
  order_.resize(furthest());
  at_.clear();
}

size_t GatherCache::furthest() const { return at_.empty() ? 0 : *std::ranges::max_element(at_); }

Tensor GatherCache::take(const Tensor& parameter, const Layout& to) {
  if (at_.empty()) {
    Tensor gathered = resharded(parameter, to);
    count(gathered.bytes());
    return gathered;
  }
  size_t& at = at_[ExecutionContext::current().turn];
  const bool known =
      at < order_.size() && order_[at].parameter.id() == parameter.id() && order_[at].to == to;
  if (!known) {
    QT_ASSERT(at == furthest());  // passes that take turns do the same
    drop_from(at);
    order_.resize(at);
    order_.push_back({parameter, to, 0});
  }
  while (first_ + gathered_.size() <= at) start(order_[first_ + gathered_.size()]);
  Gathered& mine = gathered_[at - first_];
  if (mine.tensor.absent()) {
    mine.tensor = mine.moving.wait();
    if (!known) count(order_[at].bytes = mine.tensor.bytes());
  }
  Tensor gathered = mine.tensor;
  ++at;
  if (--mine.to_come == 0) {  // those before it went likewise
    gathered_.pop_front();
    ++first_;
  }
  prefetch();
  return gathered;
}

void GatherCache::start(const Request& request) {
  gathered_.push_back({AsyncReshard(request.parameter, request.to), {}, at_.size()});
  count(request.bytes);
}

void GatherCache::prefetch() {
  int64_t ahead = 0;
  for (size_t i = furthest(); i < order_.size(); ++i) {
    const bool started = i < first_ + gathered_.size();
    if (!started && ahead > 0 && ahead + order_[i].bytes > ahead_bytes_) return;
    if (!started) start(order_[i]);
    ahead += order_[i].bytes;
  }
}

void GatherCache::drop_from(size_t at) {
  while (first_ + gathered_.size() > at) {
    Gathered last = std::move(gathered_.back());
    gathered_.pop_back();
    drop(last.tensor ? std::move(last.tensor) : last.moving.wait());
  }
}

void GatherCache::count(int64_t bytes) {
  live_ += bytes;
  peak_ = std::max(peak_, live_);
}

void GatherCache::drop(Tensor gathered) {
  if (gathered.unique()) live_ -= gathered.bytes();
}

}  // namespace quintet
