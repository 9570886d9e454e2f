#include "runtime/execution/gradient_buckets.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/mesh/reshard_plan.h"
#include "runtime/mesh/sharding.h"
#include "runtime/op/op.h"

namespace quintet {
namespace {

constexpr int64_t kBucketBytes = 8 << 20;
// Gradients that may wait for the links at once. A decoder's backward pass makes them faster than links
// between hosts take them, an encoder's, of longer rows, slower.
constexpr int64_t kSentBytes = int64_t{4} << 30;

/// Whether nothing but a sum over all ranks of some mesh axes is missing.
bool is_all_reduce(const Tensor& x, const Layout& to) {
  const Sharding* sharding = ExecutionContext::current().sharding;
  if (sharding == nullptr) return false;
  const auto plan = reshard_plan(x.spec(), x.global_slice(), x.layout(), to, sharding->mesh());
  return plan.size() == 1 && plan[0].kind == ReshardKind::kAllReduce;
}

}  // namespace

void GradientBuckets::add(const Tensor& leaf, Tensor grad, int64_t to_come) {
  const auto before = std::find_if(unfinished_.begin(), unfinished_.end(),
                                   [&](const Waiting& w) { return w.leaf.id() == leaf.id(); });
  if (before != unfinished_.end()) {
    Tensor sum = std::move(before->grad);
    unfinished_.erase(before);
    if (sum.layout() == grad.layout())
      grad = accumulate(std::move(sum), std::move(grad));
    else
      place(leaf, std::move(sum));
  }
  const bool is_last = to_come == 0 && ++passed_[leaf.id()] == passes_;
  if (!is_last && grad.layout() != leaf.layout())
    unfinished_.push_back({leaf, std::move(grad)});
  else
    place(leaf, std::move(grad));
}

void GradientBuckets::place(const Tensor& leaf, Tensor grad) {
  if (!wait_for_others(leaf, grad)) start({{leaf, {}, {}}}, std::move(grad), leaf.layout());
}

void GradientBuckets::finish() {
  for (auto& [leaf, sum] : std::exchange(unfinished_, {})) place(leaf, std::move(sum));
  for (Bucket& bucket : buckets_)
    if (!bucket.waiting.empty()) send(bucket);
  while (advanced_ < sent_.size()) advance_next();
  while (!sent_.empty()) receive_first();
}

bool GradientBuckets::wait_for_others(const Tensor& leaf, Tensor& grad) {
  if (grad.bytes() > kBucketBytes || !is_all_reduce(grad, leaf.layout())) return false;
  const MeshAxes& axes = grad.layout().partial;
  const DType dtype = grad.spec().dtype;
  auto bucket = std::find_if(buckets_.begin(), buckets_.end(),
                             [&](const Bucket& b) { return b.axes == axes && b.dtype == dtype; });
  if (bucket == buckets_.end()) bucket = buckets_.insert(bucket, Bucket{axes, dtype, {}, 0});
  if (bucket->bytes + grad.bytes() > kBucketBytes) send(*bucket);
  bucket->bytes += grad.bytes();
  bucket->waiting.push_back({leaf, std::move(grad)});
  return true;
}

void GradientBuckets::send(Bucket& bucket) {
  Tensor all = bucket.waiting.front().grad;
  if (bucket.waiting.size() > 1) {
    const Spec spec{{{"gradients", bucket.bytes / size_of(bucket.dtype)}}, bucket.dtype};
    all = Tensor(spec, {Layout::replicated(1).dims, bucket.axes}, full_slice(spec));
    int64_t at = 0;
    for (const Waiting& waiting : bucket.waiting) {
      all.device().copy(all.raw() + at, waiting.grad.raw(), waiting.grad.bytes());
      at += waiting.grad.bytes();
    }
  }
  std::vector<Part> parts;
  for (const Waiting& waiting : bucket.waiting)
    parts.push_back({waiting.leaf, waiting.grad.spec(), waiting.grad.global_slice()});
  Layout to = all.layout();
  to.partial.clear();
  bucket.waiting.clear();
  bucket.bytes = 0;
  start(std::move(parts), std::move(all), to);
}

void GradientBuckets::start(std::vector<Part> parts, Tensor all, const Layout& to) {
  if (all.layout() == to) return store(parts, std::move(all));
  const int64_t bytes = all.bytes();
  all.count_as(MemoryKind::kGradients);
  sent_.push_back({std::move(parts), AsyncReshard(std::move(all), to, true), bytes});
  sent_bytes_ += bytes;
  not_advanced_bytes_ += bytes;
  while (not_advanced_bytes_ > kSentBytes / 2) advance_next();
  while (sent_.size() > 1 && sent_bytes_ > kSentBytes) receive_first();
}

void GradientBuckets::advance_next() {
  Sent& next = sent_[advanced_++];
  not_advanced_bytes_ -= next.bytes;
  next.reshard.advance();
}

void GradientBuckets::receive_first() {
  if (advanced_ == 0) advance_next();
  --advanced_;
  Sent first = std::move(sent_.front());
  sent_.pop_front();
  sent_bytes_ -= first.bytes;
  store(first.parts, first.reshard.wait());
}

void GradientBuckets::store(const std::vector<Part>& parts, Tensor all) {
  if (parts.size() == 1) return store(parts[0].leaf, std::move(all));
  int64_t at = 0;
  for (const auto& [leaf, spec, global_slice] : parts) {
    Tensor grad(spec, leaf.layout(), global_slice);
    all.device().copy(grad.local().pointer, all.raw() + at, grad.bytes());
    at += grad.bytes();
    store(leaf, std::move(grad));
  }
}

void GradientBuckets::store(const Tensor& leaf, Tensor grad) {
  Tensor before = leaf.grad();
  leaf.set_grad({});
  leaf.set_grad(before ? accumulate(std::move(before), std::move(grad)) : std::move(grad));
}

Tensor GradientBuckets::accumulate(Tensor a, Tensor b) {
  const Tensor target = a.unique()   ? a
                        : b.unique() ? b
                                     : Tensor(a.spec(), a.layout(), a.global_slice());
  const std::array in{a.local(), b.local()};
  const std::array out{target.local()};
  Device& device = Device::current();
  const Kernel add = kernel_of(ops::table::add, device);
  add(in, out, {}, device.stream());
  return target;
}

}  // namespace quintet
