#include "runtime/execution/reshard.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "runtime/execution/tape.h"
#include "runtime/execution/turns.h"
#include "runtime/mesh/mesh.h"
#include "runtime/mesh/reshard_plan.h"
#include "runtime/mesh/sharding.h"
#include "runtime/profile/profile.h"
#include "runtime/profile/step_log.h"

namespace quintet {
namespace {

/// An array as seen from one of its dimensions: `outer` runs of `size * inner` bytes.
struct Runs {
  int64_t outer = 1, size = 1, inner = 1;
  Runs(const Tensor& x, size_t dim) : Runs(x.block().sizes, dim, size_of(x.spec().dtype)) {}
  Runs(const std::vector<int64_t>& sizes, size_t dim, int64_t element) : inner(element) {
    for (size_t i = 0; i < sizes.size(); ++i)
      (i < dim ? outer : i > dim ? inner : size) *= sizes[i];
  }
};

/// The copy of `count` neighbouring parts of `all`, each like `part`, out of the array to [count][part].
StridedCopy parts_out(const Runs& all, const std::byte* array, const Runs& part, int64_t count,
                      std::byte* parts) {
  const int64_t run = part.size * part.inner;
  return {.to = parts,
          .from = array,
          .bytes = run,
          .counts = {count, part.outer},
          .to_strides = {part.outer * run, run},
          .from_strides = {run, all.size * all.inner}};
}
/// The same the other way.
StridedCopy reversed(const StridedCopy& copy) {
  return {.to = const_cast<void*>(copy.from),
          .from = copy.to,
          .bytes = copy.bytes,
          .counts = copy.counts,
          .to_strides = copy.from_strides,
          .from_strides = copy.to_strides};
}

/// [parts][...]: the array cut into equal parts along `dim`, one after the other; the array itself
/// where that is its order already.
class Parts {
 public:
  Parts(Tensor x, size_t dim, int64_t parts) : x_(std::move(x)) {
    const Runs all(x_, dim);
    if (all.outer == 1) return;
    Runs one = all;
    one.size /= parts;
    buffer_ = x_.device().memory().allocate(x_.bytes());
    split_ = parts_out(all, x_.raw(), one, parts, buffer_.get());
  }
  std::byte* data() const { return buffer_ != nullptr ? buffer_.get() : x_.raw(); }
  void split() const {
    if (buffer_ != nullptr) x_.device().copy(split_);
  }
  void join() const {
    if (buffer_ != nullptr) x_.device().copy(reversed(split_));
  }

 private:
  Tensor x_;
  Buffer buffer_;
  StridedCopy split_{};
};

std::vector<ReshardStep> steps_between(const Tensor& x, const Layout& to) {
  const Sharding* sharding = ExecutionContext::current().sharding;
  if (sharding == nullptr || x.absent() || x.layout() == to) return {};
  return reshard_plan(x.spec(), x.global_slice(), x.layout(), to, sharding->mesh(),
                      sharding->links());
}

}  // namespace

/// One collective: its arrays, and what is packed for it and unpacked from it. The last member goes
/// first: nothing is let go of while ranks still write to it.
struct AsyncReshard::Work {
  Tensors from, to;
  std::deque<Parts> packed = {}, unpacked = {};
  Pending pending = {};

  void start(std::span<const ReshardStep> steps, const Group& group) {
    const ReshardKind kind = steps[0].kind;
    const DType dtype = from[0].spec().dtype;
    CollectiveArrays arrays;
    for (size_t i = 0; i < from.size(); ++i) {
      if (kind == ReshardKind::kSlice)
        slice(i, steps[i], group);
      else
        arrays.push_back(array(i, steps[i], group.size()));
    }
    switch (kind) {
      case ReshardKind::kAllReduce:
        pending = group.all_reduce(arrays, dtype);
        break;
      case ReshardKind::kAllGather:
        pending = group.all_gather(arrays, dtype);
        break;
      case ReshardKind::kReduceScatter:
        pending = group.reduce_scatter(arrays, dtype);
        break;
      case ReshardKind::kAllToAll: {
        QT_ASSERT(arrays.size() == 1);
        pending = group.all_to_all(arrays[0].from, arrays[0].to, arrays[0].count, dtype);
        break;
      }
      case ReshardKind::kSlice:
        break;
    }
  }
  void finish() {
    pending.wait();
    for (const Parts& parts : unpacked) parts.join();
  }

  /// What the collective takes of array number i.
  CollectiveArray array(size_t i, const ReshardStep& step, int64_t ranks) {
    CollectiveArray array{from[i].local().pointer, to[i].local().pointer,
                          from[i].local().elements()};
    if (step.kind == ReshardKind::kReduceScatter || step.kind == ReshardKind::kAllToAll) {
      const size_t dim = step.kind == ReshardKind::kAllToAll ? step.to_dim : step.dim;
      packed.emplace_back(from[i], dim, ranks).split();
      array.from = packed.back().data();
      array.count /= ranks;
    }
    if (step.kind == ReshardKind::kAllGather || step.kind == ReshardKind::kAllToAll)
      array.to = unpacked.emplace_back(to[i], step.dim, ranks).data();
    return array;
  }
  void slice(size_t i, const ReshardStep& step, const Group& group) const {
    const Runs all(from[i], step.dim), part(to[i], step.dim);
    const int64_t first = group.rank() * part.size * part.inner;
    from[i].device().copy(parts_out(all, from[i].raw() + first, part, 1, to[i].raw()));
  }
};

bool Route::takes_several() const {
  return std::ranges::none_of(
      steps, [](const auto& step) { return step.first == ReshardKind::kAllToAll; });
}

Route route_between(const Tensor& x, const Layout& to) {
  Route route{{}, x.spec().dtype};
  for (const ReshardStep& step : steps_between(x, to))
    route.steps.emplace_back(step.kind, step.axes);
  return route;
}

AsyncReshard::AsyncReshard(Tensors xs, const std::vector<Layout>& to, bool background)
    : now_(std::move(xs)), background_(background) {
  for (size_t i = 0; i < now_.size(); ++i) steps_.push_back(steps_between(now_[i], to[i]));
  if (rounds() > 0) start_next();
}
AsyncReshard::AsyncReshard(Tensor x, const Layout& to, bool background)
    : AsyncReshard(Tensors{std::move(x)}, std::vector{to}, background) {}
AsyncReshard::AsyncReshard(Tensor x, const ReshardStep& step)
    : now_{std::move(x)}, steps_{{step}}, background_(false) {
  start_next();
}
AsyncReshard::AsyncReshard(AsyncReshard&&) noexcept = default;
AsyncReshard& AsyncReshard::operator=(AsyncReshard&&) noexcept = default;
AsyncReshard::~AsyncReshard() = default;

void AsyncReshard::start_next() {
  std::vector<ReshardStep> steps;
  for (const auto& of_array : steps_) steps.push_back(of_array[at_]);
  if (StepLog* log = ExecutionContext::current().log) log->reshard(now_, steps);
  Tensors to;
  for (size_t i = 0; i < now_.size(); ++i) {
    const bool in_place = steps[i].kind == ReshardKind::kAllReduce && now_[i].unique();
    to.push_back(in_place ? now_[i].summed(steps[i].after)
                          : Tensor(now_[i].spec(), steps[i].after, now_[i].global_slice()));
  }
  work_ = std::make_unique<Work>(Work{std::exchange(now_, {}), std::move(to)});
  const Mesh* ranks = ExecutionContext::current().sharding->ranks();
  if (ranks == nullptr) return;
  const Group& group = ranks->group(steps[0].axes);
  work_->start(steps, background_ ? group.in_background() : group);
}

void AsyncReshard::finish() {
  work_->finish();
  now_ = std::move(work_->to);
  work_.reset();
  ++at_;
}

void AsyncReshard::advance() {
  if (at_ + 1 >= rounds()) return;
  finish();
  start_next();
}

Tensors AsyncReshard::wait_all() {
  while (at_ < rounds()) {
    if (work_ == nullptr) start_next();
    finish();
  }
  return std::move(now_);
}
Tensor AsyncReshard::wait() { return std::move(wait_all().front()); }

Tensor resharded(Tensor x, const Layout& to) {
  for (const ReshardStep& step : steps_between(x, to)) {
    const ProfileScope scope(name_of(step.kind), step.bytes);
    AsyncReshard moving(std::move(x), step);
    take_turn();
    x = moving.wait();
  }
  return x;
}

Tensor reshard(const Tensor& x, const Layout& to) {
  const Tensor y = resharded(x, to);
  Tape* tape = ExecutionContext::current().tape;
  if (tape == nullptr || !x.needs_grad() || y.id() == x.id()) return y;
  Tensor result = y;
  result.set_needs_grad(true);
  // Whose gradient it is decides the layout: the tape brings it to that of x.
  tape->record({nullptr, {x}, {result}, {}, nullptr});
  return result;
}

}  // namespace quintet
