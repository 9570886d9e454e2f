#include "runtime/execution/gradient_buckets.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "kernels/cpu/convert.h"
#include "kernels/gpu/gpu_kernels.h"
#include "kernels/optimizers/float_pointer.h"
#include "runtime/op/op.h"

namespace quintet {
namespace {

constexpr int64_t kBucketBytes = 8 << 20;
// The last gradients of a pass, about a layer of them, go in small buckets: no work hides what is sent
// then.
constexpr size_t kLast = 12;
constexpr int64_t kLastBytes = 4 << 20;
// Gradients of a layer wait for each other up to so many: a layer of T5 XXL, of which 8 ranks have a share each.
constexpr int64_t kLayerBytes = 128 << 20;
// Gradients that may wait for the links at once. A decoder's backward pass makes them faster than links
// between hosts take them, an encoder's, of longer rows, slower.
constexpr int64_t kSentBytes = int64_t{4} << 30;

void cast_on_cpu(const View& from, const View& to) {
  from.dtype == DType::f32 ? cpu::convert(from.data<float>(), from.elements(), to.data<bfloat16>())
                           : cpu::convert(from.data<bfloat16>(), from.elements(), to.data<float>());
}

/// The same in bfloat16, rounded to nearest even, or back in float32.
Tensors cast(const Tensors& xs, DType dtype) {
  Tensors ys;
  std::vector<View> from, to;
  for (const Tensor& x : xs) {
    ys.emplace_back(Spec{x.spec().axes, dtype}, x.layout(), x.global_slice());
    ys.back().count_as(MemoryKind::kGradients);
    from.push_back(x.local());
    to.push_back(ys.back().local());
  }
  Device& device = Device::current();
  if (!device.is_cpu())
    device.kernels().cast(from, to, device.stream());
  else
    for (size_t i = 0; i < xs.size(); ++i) cast_on_cpu(from[i], to[i]);
  return ys;
}

/// sum += x, added in float32 and rounded to bfloat16.
void grow(const View& sum, const View& x) {
  Device& device = Device::current();
  if (!device.is_cpu()) return device.kernels().accumulate(sum, x, device.stream());
  const FloatPointer to(sum), from(x);
  cpu::parallel_for(sum.elements(), cpu::kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) (to + i).set((to + i).get() + (from + i).get());
  });
}

}  // namespace

void GradientBuckets::add(const Tensor& leaf, Tensor grad, int64_t to_come) {
  const auto before = unfinished_of(leaf);
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

std::vector<GradientBuckets::Waiting>::iterator GradientBuckets::unfinished_of(const Tensor& leaf) {
  return std::ranges::find_if(unfinished_,
                              [&](const Waiting& w) { return w.leaf.id() == leaf.id(); });
}

Tensor GradientBuckets::take_sum(const Tensor& leaf) {
  Tensor sum;
  if (const auto waiting = unfinished_of(leaf); waiting != unfinished_.end()) {
    sum = std::move(waiting->grad);
    unfinished_.erase(waiting);
  } else {
    sum = leaf.grad();
    leaf.set_grad({});
  }
  return sum;
}

void GradientBuckets::return_sum(const Tensor& leaf, Tensor sum) {
  if (sum.layout() == leaf.layout())
    store(leaf, std::move(sum));  // the call may have let another gradient of the leaf arrive
  else
    unfinished_.push_back({leaf, std::move(sum)});
}

void GradientBuckets::place(const Tensor& leaf, Tensor grad) {
  if (grad.layout() == leaf.layout()) return store(leaf, std::move(grad));
  Route route = route_between(grad, leaf.layout());
  auto bucket = std::ranges::find(buckets_, route, &Bucket::route);
  if (bucket == buckets_.end()) bucket = buckets_.insert(bucket, Bucket{std::move(route), {}, 0});
  if (!joins(*bucket, leaf, grad)) send(*bucket);
  bucket->bytes += grad.bytes();
  bucket->waiting.push_back({leaf, std::move(grad)});
  const bool ends = ++placed_ + kLast > layers_.size() || layers_.layer_of(leaf).empty();
  if (bucket->bytes > (ends ? kLastBytes : kLayerBytes)) send(*bucket);
}

bool GradientBuckets::joins(const Bucket& bucket, const Tensor& leaf, const Tensor& grad) const {
  if (bucket.waiting.empty()) return true;
  if (!bucket.route.takes_several()) return false;
  if (bucket.bytes + grad.bytes() <= kBucketBytes) return true;
  // Deferred weight gradients come behind the first ones of the next layer: two layers may mix.
  std::set<std::string_view> layers{layers_.layer_of(leaf)};
  for (const Waiting& waiting : bucket.waiting) layers.insert(layers_.layer_of(waiting.leaf));
  return layers.size() <= 2 && !layers.contains({});
}

void GradientBuckets::end_region() {
  for (Bucket& bucket : buckets_) send(bucket);
  while (sent_.size() > sent_in_region_) receive_first();
  sent_in_region_ = 0;
}

void GradientBuckets::finish() {
  for (auto& [leaf, sum] : std::exchange(unfinished_, {})) place(leaf, std::move(sum));
  for (Bucket& bucket : buckets_) send(bucket);
  while (advanced_ < sent_.size()) advance_next();
  while (!sent_.empty()) receive_first();
}

void GradientBuckets::send(Bucket& bucket) {
  if (bucket.waiting.empty()) return;
  Tensors leaves, grads;
  std::vector<Layout> layouts;
  for (auto& [leaf, grad] : bucket.waiting) {
    grad.count_as(MemoryKind::kGradients);
    layouts.push_back(leaf.layout());
    grads.push_back(std::move(grad));
    leaves.push_back(std::move(leaf));
  }
  bucket.waiting.clear();
  const DType summed = grads[0].spec().dtype, travels = dtypes_.travels;
  if (summed == DType::f32 && travels != summed && !grads[0].layout().partial.empty())
    grads = cast(grads, travels);
  const int64_t bytes = std::exchange(bucket.bytes, 0);
  sent_.push_back(
      {std::move(leaves), AsyncReshard(std::move(grads), layouts, true), bytes, summed});
  sent_bytes_ += bytes;
  ++sent_in_region_;
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
  Tensors grads = first.reshard.wait_all();
  if (grads[0].spec().dtype != first.dtype && dtypes_.stored == first.dtype)
    grads = cast(grads, first.dtype);
  for (size_t i = 0; i < grads.size(); ++i) store(first.leaves[i], std::move(grads[i]));
}

void GradientBuckets::store(const Tensor& leaf, Tensor grad) const {
  Tensor before = leaf.grad();
  leaf.set_grad({});
  const bool is_rounded = dtypes_.stored == DType::bf16;
  if (before && is_rounded) {
    grow(before.local(), grad.local());
    grad = std::move(before);
  } else if (before) {
    grad = accumulate(std::move(before), std::move(grad));
  } else if (is_rounded && grad.spec().dtype != DType::bf16) {
    grad = cast({std::move(grad)}, DType::bf16)[0];
  }
  leaf.set_grad(std::move(grad));
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

Tensor GradientBuckets::scaled(const Tensor& x, double factor) {
  if (!x || factor == 1) return x;
  if (const DType dtype = x.spec().dtype; dtype != DType::f32 && Device::current().is_cpu())
    return cast({scaled(cast({x}, DType::f32)[0], factor)}, dtype)[0];  // float32 is what it scales
  const Tensor y(x.spec(), x.layout(), x.global_slice());
  const std::array in{x.local()}, out{y.local()};
  Device& device = Device::current();
  kernel_of(ops::table::scale, device)(in, out, {{"factor", factor}}, device.stream());
  return y;
}

}  // namespace quintet
