#include "runtime/execution/gathers.h"

namespace quintet {

void Gathers::begin_step() {
  drop_ahead();
  at_ = 0;
  peak_ = live_;
  in_step_ = true;
}

void Gathers::end_step() {
  drop_ahead();
  order_.resize(at_);
  in_step_ = false;
}

Tensor Gathers::take(const Tensor& parameter, const Layout& to) {
  const bool known = in_step_ && at_ < order_.size() &&
                     order_[at_].parameter.id() == parameter.id() && order_[at_].to == to;
  Tensor gathered;
  if (known && ahead_) {
    gathered = ahead_->wait();
    ahead_.reset();
  } else {
    drop_ahead();
    gathered = resharded(parameter, to);
    count(gathered);
  }
  if (!in_step_) return gathered;
  if (!known) {
    order_.resize(at_);
    order_.push_back({parameter, to});
  }
  ++at_;
  start_next();
  return gathered;
}

void Gathers::start_next() {
  if (at_ >= order_.size()) return;
  ahead_ = AsyncReshard::start(order_[at_].parameter, order_[at_].to);
  if (ahead_) count(ahead_->result());
}

void Gathers::drop_ahead() {
  if (ahead_) drop(ahead_->wait());
  ahead_.reset();
}

void Gathers::count(const Tensor& gathered) {
  live_ += gathered.bytes();
  peak_ = std::max(peak_, live_);
}

void Gathers::drop(Tensor gathered) { live_ -= gathered.bytes(); }

}  // namespace quintet
