#include "runtime/execution/reshard.h"

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
  return reshard_plan(x.spec(), x.global_slice(), x.layout(), to, sharding->mesh());
}

}  // namespace

/// One collective: its arrays, and what is packed for it and unpacked from it. The last member goes
/// first: nothing is let go of while ranks still write to it.
struct AsyncReshard::Work {
  Tensor from, to;
  std::optional<Parts> packed = {}, unpacked = {};
  Pending pending = {};

  void start(const ReshardStep& step, const Group& group) {
    const DType dtype = from.spec().dtype;
    const int64_t elements = from.local().elements();
    void *const x = from.local().pointer, *const y = to.local().pointer;
    if (step.kind == ReshardKind::kReduceScatter || step.kind == ReshardKind::kAllToAll) {
      packed.emplace(from, step.kind == ReshardKind::kAllToAll ? step.to_dim : step.dim,
                     group.size());
      packed->split();
    }
    if (step.kind == ReshardKind::kAllGather || step.kind == ReshardKind::kAllToAll)
      unpacked.emplace(to, step.dim, group.size());
    switch (step.kind) {
      case ReshardKind::kAllReduce:
        pending = group.all_reduce(x, y, elements, dtype);
        break;
      case ReshardKind::kAllGather:
        pending = group.all_gather(x, unpacked->data(), elements, dtype);
        break;
      case ReshardKind::kReduceScatter:
        pending = group.reduce_scatter(packed->data(), y, elements / group.size(), dtype);
        break;
      case ReshardKind::kAllToAll:
        pending =
            group.all_to_all(packed->data(), unpacked->data(), elements / group.size(), dtype);
        break;
      case ReshardKind::kSlice: {
        const Runs all(from, step.dim), part(to, step.dim);
        const int64_t first = group.rank() * part.size * part.inner;
        from.device().copy(parts_out(all, from.raw() + first, part, 1, to.raw()));
        break;
      }
    }
  }
  void finish() {
    pending.wait();
    if (unpacked) unpacked->join();
  }
};

AsyncReshard::AsyncReshard(Tensor x, const Layout& to, bool background)
    : now_(std::move(x)), steps_(steps_between(now_, to)), background_(background) {
  if (!steps_.empty()) start_next();
}
AsyncReshard::AsyncReshard(Tensor x, const ReshardStep& step)
    : now_(std::move(x)), steps_{step}, background_(false) {
  start_next();
}
AsyncReshard::AsyncReshard(AsyncReshard&&) noexcept = default;
AsyncReshard& AsyncReshard::operator=(AsyncReshard&&) noexcept = default;
AsyncReshard::~AsyncReshard() = default;

void AsyncReshard::start_next() {
  const ReshardStep& step = steps_[at_];
  if (StepLog* log = ExecutionContext::current().log) log->reshard(now_, step);
  const bool in_place = step.kind == ReshardKind::kAllReduce && now_.unique();
  Tensor to =
      in_place ? now_.summed(step.after) : Tensor(now_.spec(), step.after, now_.global_slice());
  work_ = std::make_unique<Work>(Work{std::move(now_), std::move(to)});
  const Mesh* ranks = ExecutionContext::current().sharding->ranks();
  if (ranks == nullptr) return;
  const Group& group = ranks->group(step.axes);
  work_->start(step, background_ ? group.in_background() : group);
}

void AsyncReshard::finish() {
  work_->finish();
  now_ = std::move(work_->to);
  work_.reset();
  ++at_;
}

void AsyncReshard::advance() {
  if (at_ + 1 >= steps_.size()) return;
  finish();
  start_next();
}

Tensor AsyncReshard::wait() {
  while (at_ < steps_.size()) {
    if (work_ == nullptr) start_next();
    finish();
  }
  return std::move(now_);
}

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
