#include "runtime/reshard.h"

#include "runtime/mesh/mesh.h"
#include "runtime/mesh/movement.h"
#include "runtime/mesh/sharding.h"
#include "runtime/profile.h"
#include "runtime/step_log.h"
#include "runtime/tape.h"

namespace quintet {
namespace {

/// An array as seen from one of its dimensions: `outer` runs of `size * inner` bytes.
struct Runs {
  int64_t outer = 1, size = 1, inner = 1;
  Runs(const Tensor& x, size_t dim) : Runs(x.block().sizes, dim, size_of(x.spec().dtype)) {}
  Runs(const std::vector<int64_t>& sizes, size_t dim, int64_t element) : inner(element) {
    for (size_t i = 0; i < sizes.size(); ++i) (i < dim ? outer : i > dim ? inner : size) *= sizes[i];
  }
};

/// Copies every run of `part` out of (or, `into`, to) its place at `first` in the runs of `all`.
void copy_runs(const Runs& all, std::byte* in_all, const Runs& part, std::byte* in_part,
               int64_t first, bool into) {
  Device& device = Device::current();
  const int64_t bytes = part.size * part.inner;
  for (int64_t i = 0; i < part.outer; ++i) {
    std::byte* place = in_all + (i * all.size + first) * all.inner;
    if (into)
      device.copy(place, in_part + i * bytes, bytes);
    else
      device.copy(in_part + i * bytes, place, bytes);
  }
}

std::byte* bytes_at(const Tensor& x) { return static_cast<std::byte*>(x.local().pointer); }

/// [parts][...]: the array cut into equal parts along `dim`, one after the other; the array itself
/// where that is its order already.
class Parts {
 public:
  Parts(Tensor x, size_t dim, int64_t parts) : x_(std::move(x)), whole_(x_, dim), one_(whole_) {
    one_.size /= parts;
    if (whole_.outer == 1) return;
    buffer_ = x_.device().memory().allocate(x_.bytes());
  }
  std::byte* data() const { return buffer_ != nullptr ? buffer_.get() : bytes_at(x_); }
  void split() const { each(false); }
  void join() const { each(true); }

 private:
  void each(bool into) const {
    if (buffer_ == nullptr) return;
    const int64_t bytes = one_.outer * one_.size * one_.inner;
    for (int64_t part = 0; part * one_.size < whole_.size; ++part)
      copy_runs(whole_, bytes_at(x_), one_, buffer_.get() + part * bytes, part * one_.size, into);
  }
  Tensor x_;
  Runs whole_, one_;
  Buffer buffer_;
};

void run_move(const Move& move, const Group& group, const Tensor& x, const Tensor& y) {
  const DType dtype = x.spec().dtype;
  const int64_t elements = x.local().elements();
  switch (move.kind) {
    case MoveKind::kAllReduce:
      x.device().copy(y.local().pointer, x.local().pointer, x.bytes());
      return group.all_reduce(y.local().pointer, elements, dtype).wait();
    case MoveKind::kAllGather: {
      const Parts parts(y, move.dim, group.size());
      group.all_gather(x.local().pointer, parts.data(), elements, dtype).wait();
      return parts.join();
    }
    case MoveKind::kReduceScatter: {
      const Parts parts(x, move.dim, group.size());
      parts.split();
      return group
          .reduce_scatter(parts.data(), y.local().pointer, elements / group.size(), dtype)
          .wait();
    }
    case MoveKind::kAllToAll: {
      const Parts to(x, move.to_dim, group.size()), from(y, move.dim, group.size());
      to.split();
      group.all_to_all(to.data(), from.data(), elements / group.size(), dtype).wait();
      return from.join();
    }
    case MoveKind::kSlice: {
      const Runs all(x, move.dim), part(y, move.dim);
      return copy_runs(all, bytes_at(x), part, bytes_at(y), group.rank() * part.size, false);
    }
  }
}

}  // namespace

Tensor moved(const Tensor& x, const Layout& to) {
  const Sharding* sharding = Sharding::current();
  if (sharding == nullptr || x.absent() || x.layout() == to) return x;
  Tensor now = x;
  for (const Move& move : moves(x.spec(), x.frame(), x.layout(), to, sharding->mesh())) {
    const ProfileScope scope(name_of(move.kind), move.bytes);
    if (StepLog* log = StepLog::current()) log->move(now, move);
    Tensor next(x.spec(), move.after, x.frame());
    if (const Mesh* ranks = sharding->ranks(); ranks != nullptr)
      run_move(move, ranks->group(move.axes), now, next);
    now = std::move(next);
  }
  return now;
}

struct AsyncGather::Work {
  Tensor from, to;
  Parts parts;
  Pending pending;
};

AsyncGather::AsyncGather(std::unique_ptr<Work> work) : work_(std::move(work)) {}
AsyncGather::AsyncGather(AsyncGather&&) noexcept = default;
AsyncGather& AsyncGather::operator=(AsyncGather&&) noexcept = default;
AsyncGather::~AsyncGather() = default;
const Tensor& AsyncGather::result() const { return work_->to; }

std::optional<AsyncGather> AsyncGather::start(const Tensor& x, const Layout& to) {
  const Sharding* sharding = Sharding::current();
  if (sharding == nullptr || sharding->ranks() == nullptr) return std::nullopt;
  const std::vector<Move> steps = moves(x.spec(), x.frame(), x.layout(), to, sharding->mesh());
  if (steps.size() != 1 || steps[0].kind != MoveKind::kAllGather) return std::nullopt;
  if (StepLog* log = StepLog::current()) log->move(x, steps[0]);
  const Group& group = sharding->ranks()->group(steps[0].axes);
  const Tensor y(x.spec(), to, x.frame());
  auto work = std::make_unique<Work>(Work{x, y, Parts(y, steps[0].dim, group.size()), {}});
  work->pending =
      group.all_gather(x.local().pointer, work->parts.data(), x.local().elements(), x.spec().dtype);
  return AsyncGather(std::move(work));
}

Tensor AsyncGather::wait() {
  work_->pending.wait();
  work_->parts.join();
  return std::move(work_->to);
}

Tensor reshard(const Tensor& x, const Layout& to) {
  const Tensor y = moved(x, to);
  Tape* tape = Tape::current();
  if (tape == nullptr || !x.needs_grad() || y.id() == x.id()) return y;
  Tensor result = y;
  result.set_needs_grad(true);
  // Whose gradient it is decides the layout: the tape brings it to that of x.
  tape->record({nullptr, {x}, {result}, {}, nullptr});
  return result;
}

}  // namespace quintet
