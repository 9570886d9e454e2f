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
    order_.push_back({parameter, to, route_between(parameter, to), 0});
  }
  while (first_ + gathered_.size() <= at) start(first_ + gathered_.size());
  Gathered& mine = gathered_[at - first_];
  const bool first = mine.tensor.absent();
  Tensor gathered = mine.wait();
  if (first && !known) count(order_[at].bytes = gathered.bytes());
  ++at;
  if (--mine.to_come == 0) {  // those before it went likewise
    gathered_.pop_front();
    ++first_;
  }
  prefetch();
  return gathered;
}

/// The end of what is gathered together with order_[begin].
size_t GatherCache::bundle_end(size_t begin) const {
  const Request& first = order_[begin];
  const std::string_view layer = layers_.layer_of(first.parameter);
  size_t end = begin + 1;
  if (layer.empty() || !first.route.takes_several()) return end;
  int64_t bytes = first.bytes;
  for (; end < order_.size(); ++end) {
    const Request& next = order_[end];
    bytes += next.bytes;
    if (layers_.layer_of(next.parameter) != layer || next.route != first.route) break;
    if (4 * bytes > ahead_bytes_) break;
  }
  return end;
}

void GatherCache::start(size_t begin) {
  const size_t end = bundle_end(begin);
  Tensors parameters;
  std::vector<Layout> layouts;
  for (size_t i = begin; i < end; ++i) {
    parameters.push_back(order_[i].parameter);
    layouts.push_back(order_[i].to);
    count(order_[i].bytes);
  }
  const auto bundle =
      std::make_shared<Bundle>(Bundle{AsyncReshard(std::move(parameters), layouts), {}});
  for (size_t i = begin; i < end; ++i) gathered_.push_back({bundle, i - begin, at_.size()});
}

const Tensor& GatherCache::Gathered::wait() {
  if (tensor.absent()) {
    if (bundle->tensors.empty()) bundle->tensors = bundle->moving.wait_all();
    tensor = std::move(bundle->tensors[place]);
  }
  return tensor;
}

void GatherCache::prefetch() {
  int64_t ahead = 0;
  for (size_t i = furthest(); i < order_.size(); ++i) {
    const bool started = i < first_ + gathered_.size();
    if (!started) {
      int64_t bytes = ahead;
      for (size_t next = i; next < bundle_end(i); ++next) bytes += order_[next].bytes;
      if (ahead > 0 && bytes > ahead_bytes_) return;
      start(i);
    }
    ahead += order_[i].bytes;
  }
}

void GatherCache::drop_from(size_t at) {
  while (first_ + gathered_.size() > at) {
    Gathered last = std::move(gathered_.back());
    gathered_.pop_back();
    last.wait();
    drop(std::move(last.tensor));
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
