#include "runtime/execution/reshard.h"

#include "runtime/execution/tape.h"
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

/// Copies every run of `part` out of (or, `into`, to) its place at `first` in the runs of `all`.
void copy_runs(const Runs& all, std::byte* in_all, const Runs& part, std::byte* in_part,
               int64_t first, bool into) {
  Device& device = Device::current();
  if (!device.memory_is_real()) return;  // millions of runs, of nothing
  const int64_t bytes = part.size * part.inner;
  for (int64_t i = 0; i < part.outer; ++i) {
    std::byte* place = in_all + (i * all.size + first) * all.inner;
    if (into)
      device.copy(place, in_part + i * bytes, bytes);
    else
      device.copy(in_part + i * bytes, place, bytes);
  }
}

/// [parts][...]: the array cut into equal parts along `dim`, one after the other; the array itself
/// where that is its order already.
class Parts {
 public:
  Parts(Tensor x, size_t dim, int64_t parts) : x_(std::move(x)), all_(x_, dim), one_(all_) {
    one_.size /= parts;
    if (all_.outer == 1) return;
    buffer_ = x_.device().memory().allocate(x_.bytes());
  }
  std::byte* data() const { return buffer_ != nullptr ? buffer_.get() : x_.raw(); }
  void split() const { each(false); }
  void join() const { each(true); }

 private:
  void each(bool into) const {
    if (buffer_ == nullptr) return;
    const int64_t bytes = one_.outer * one_.size * one_.inner;
    for (int64_t part = 0; part * one_.size < all_.size; ++part)
      copy_runs(all_, x_.raw(), one_, buffer_.get() + part * bytes, part * one_.size, into);
  }
  Tensor x_;
  Runs all_, one_;
  Buffer buffer_;
};

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
        from.device().copy(y, x, from.bytes());
        pending = group.all_reduce(y, elements, dtype);
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
        copy_runs(all, from.raw(), part, to.raw(), group.rank() * part.size, false);
        break;
      }
    }
  }
  void finish() {
    pending.wait();
    if (unpacked) unpacked->join();
  }
};

Tensor resharded(const Tensor& x, const Layout& to) {
  const Sharding* sharding = ExecutionContext::current().sharding;
  if (sharding == nullptr || x.absent() || x.layout() == to) return x;
  Tensor now = x;
  for (const ReshardStep& step :
       reshard_plan(x.spec(), x.global_slice(), x.layout(), to, sharding->mesh())) {
    const ProfileScope scope(name_of(step.kind), step.bytes);
    if (StepLog* log = ExecutionContext::current().log) log->reshard(now, step);
    const Tensor next(x.spec(), step.after, x.global_slice());
    if (const Mesh* ranks = sharding->ranks(); ranks != nullptr) {
      AsyncReshard::Work work{now, next};
      work.start(step, ranks->group(step.axes));
      work.finish();
    }
    now = next;
  }
  return now;
}

AsyncReshard::AsyncReshard(std::unique_ptr<Work> work) : work_(std::move(work)) {}
AsyncReshard::AsyncReshard(AsyncReshard&&) noexcept = default;
AsyncReshard& AsyncReshard::operator=(AsyncReshard&&) noexcept = default;
AsyncReshard::~AsyncReshard() = default;
const Tensor& AsyncReshard::result() const { return work_->to; }

std::optional<AsyncReshard> AsyncReshard::start(const Tensor& x, const Layout& to) {
  const Sharding* sharding = ExecutionContext::current().sharding;
  if (sharding == nullptr || sharding->ranks() == nullptr) return std::nullopt;
  const std::vector<ReshardStep> plan =
      reshard_plan(x.spec(), x.global_slice(), x.layout(), to, sharding->mesh());
  if (plan.size() != 1 || plan[0].kind == ReshardKind::kSlice) return std::nullopt;
  if (StepLog* log = ExecutionContext::current().log) log->reshard(x, plan[0]);
  auto work = std::make_unique<Work>(Work{x, Tensor(x.spec(), to, x.global_slice())});
  work->start(plan[0], sharding->ranks()->group(plan[0].axes));
  return AsyncReshard(std::move(work));
}

Tensor AsyncReshard::wait() {
  work_->finish();
  return std::move(work_->to);
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
