#include "runtime/execution/row_exchange.h"

#include <algorithm>

#include "runtime/execution/tape.h"
#include "runtime/mesh/mesh.h"
#include "runtime/mesh/reshard_plan.h"
#include "runtime/mesh/sharding.h"
#include "runtime/profile/profile.h"
#include "runtime/profile/step_log.h"

namespace quintet {
namespace {

// The capacity for rows that come is a multiple of this part of a rank's rows: few sizes, which plans and
// the allocator meet again.
constexpr int64_t kCapacityParts = 8;

/// `from` without those of `axes`, in order.
MeshAxes without(MeshAxes from, const MeshAxes& axes) {
  std::erase_if(from, [&](const std::string& axis) {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  });
  return from;
}

/// One block for each of the ranks that still have different rows, sharded over them; `each` of the next
/// axis for each of the ranks that have different experts.
struct Arrived {
  Spec spec;
  Layout layout;
  Arrived(const Layout& packed, const MeshAxes& axes, Axis each, DType dtype) {
    const Axes& mesh = ExecutionContext::current().sharding->mesh();
    const MeshAxes rest = without(packed.dims[0], axes);
    each.size *= parts_of(axes, mesh);
    spec = {{{"packed", parts_of(rest, mesh)}, std::move(each)}, dtype};
    layout = {{rest, axes}, {}};
  }
};

/// Tells the log of an exchange of `x`, of which `bytes` are here, and how it then lies.
ReshardStep log_exchange(const Tensor& x, const MeshAxes& axes, int64_t ranks, int64_t bytes,
                         const Spec& to, const Layout& layout) {
  ReshardStep step{ReshardKind::kAllToAll,
                   axes,
                   0,
                   1,
                   layout,
                   Traffic::sent("all_to_all", bytes, static_cast<int>(ranks))};
  if (StepLog* log = ExecutionContext::current().log) log->reshard(x, step, &to);
  return step;
}

/// `result` of `rows`, recorded; `back` brings gradients to where `rows` are.
Tensor recorded(const Tensor& rows, Tensor result, std::function<Tensor(const Tensor&)> back) {
  Tape* tape = ExecutionContext::current().tape;
  if (tape == nullptr || !rows.needs_grad()) return result;
  result.set_needs_grad(true);
  tape->record({nullptr,
                {rows},
                {result},
                {},
                [back = std::move(back)](const Node&, const Tensors& grads) {
                  return Tensors{back(grads[0])};
                },
                true});
  return result;
}

}  // namespace

std::shared_ptr<const RowExchange> RowExchange::of(const Tensor& offsets, const Tensor& choices,
                                                   int64_t experts, int64_t slots) {
  const Sharding* sharding = ExecutionContext::current().sharding;
  if (sharding == nullptr) return nullptr;
  const MeshAxes axes = sharding->place({{{axis::kExpert, experts}}, DType::f32}).dims[0];
  const MeshAxes& batch = offsets.layout().dims[0];
  if (axes.empty() || !without(axes, batch).empty() ||
      experts % parts_of(axes, sharding->mesh()) != 0)
    return nullptr;
  std::shared_ptr<RowExchange> exchange(new RowExchange);
  exchange->axes_ = axes;
  exchange->packed_ = choices;
  exchange->ranks_ = parts_of(axes, sharding->mesh());
  const int64_t arrived = exchange->count(offsets, experts);
  const int64_t all = choices.local().elements(), local = experts / exchange->ranks_;
  exchange->capacity_ = slots == 0 ? exchange->capacity_for(arrived)
                                   : exchange->ranks_ * std::min(all, local * slots);
  if (arrived > exchange->capacity_)
    throw Bug(fmt::format("experts: {} rows arrive, capacity {}", arrived, exchange->capacity_));
  return exchange;
}

int64_t RowExchange::count(const Tensor& offsets, int64_t experts) {
  const Sharding& sharding = *ExecutionContext::current().sharding;
  const int64_t local = experts / ranks_;
  const HostArray before = offsets.to_host();
  const auto* first = before.as<int32_t>().data();
  std::vector<int32_t> mine(static_cast<size_t>(experts)), theirs(mine.size());  // [rank][expert]
  for (size_t e = 0; e < mine.size(); ++e) mine[e] = first[e + 1] - first[e];
  const Arrived there(offsets.layout(), axes_, {"experts", local + 1}, DType::i32);
  const ReshardStep step =
      log_exchange(offsets, axes_, ranks_, experts * size_of(DType::i32), there.spec, there.layout);
  if (const Mesh* ranks = sharding.ranks(); ranks != nullptr) {
    const ProfileScope scope(name_of(step.kind), step.bytes);
    ranks->group(axes_).on_host().all_to_all(mine.data(), theirs.data(), local, DType::i32).wait();
  }
  HostArray arrived(DType::i32, {1, local + 1});
  int64_t next = 0;
  for (int64_t e = 0; e < local; ++e) {
    arrived.as<int32_t>()[static_cast<size_t>(e)] = static_cast<int32_t>(next);
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      const int64_t count = theirs[static_cast<size_t>(rank * local + e)];
      if (count > 0) there_.push_back({static_cast<int>(rank), next, count});
      next += count;
    }
  }
  arrived.as<int32_t>()[static_cast<size_t>(local)] = static_cast<int32_t>(next);
  for (int64_t e = 0; e < experts; ++e)
    if (const int64_t count = mine[static_cast<size_t>(e)]; count > 0)
      here_.push_back({static_cast<int>(e / local), first[e], count});
  offsets_ = Tensor(there.spec, there.layout, full_slice(there.spec));
  offsets_.set(arrived);
  return next;
}

int64_t RowExchange::capacity_for(int64_t arrived) const {
  const int64_t all = packed_.local().elements(), unit = std::max<int64_t>(1, all / kCapacityParts);
  const Sharding& sharding = *ExecutionContext::current().sharding;
  const MeshAxes& batch = packed_.layout().dims[0];  // plans depend on sizes: all ranks must agree
  const auto parts = static_cast<int>(parts_of(batch, sharding.mesh()));
  if (StepLog* log = ExecutionContext::current().log)
    log->statistics(batch, size_of(DType::i64),
                    Traffic::sent("all_reduce", size_of(DType::i64), parts));
  int64_t most = std::max(arrived, all);
  if (const Mesh* ranks = sharding.ranks(); ranks != nullptr)
    ranks->group(batch).on_host().all_reduce(&most, 1, DType::i64, Reduction::max).wait();
  return (most + unit - 1) / unit * unit;
}

Tensor RowExchange::exchanged(const Tensor& rows, bool out) const {
  const Sharding& sharding = *ExecutionContext::current().sharding;
  QT_ASSERT(rows.layout().partial.empty());
  const Axis& last = rows.spec().axes[2];
  Spec spec = packed_.spec();
  Layout layout = packed_.layout();
  Block global_slice = packed_.global_slice();
  spec.dtype = rows.spec().dtype;
  if (out) {
    Arrived there(packed_.layout(), axes_, {"rows", capacity_}, spec.dtype);
    spec = std::move(there.spec), layout = std::move(there.layout), global_slice = full_slice(spec);
  }
  spec.axes.push_back(last);
  layout.dims.push_back(rows.layout().dims[2]);
  global_slice.origin.push_back(rows.global_slice().origin[2]);
  global_slice.sizes.push_back(rows.global_slice().sizes[2]);
  const Tensor result(spec, layout, global_slice);
  const int64_t depth = rows.local().depth(), elements = packed_.local().elements() * depth;
  const ReshardStep step =
      log_exchange(rows, axes_, ranks_, elements * size_of(spec.dtype), spec, layout);
  Pending rows_travel;
  if (const Mesh* ranks = sharding.ranks(); ranks != nullptr) {
    const auto elements_of = [&](Slices slices) {
      for (Slice& slice : slices) slice.first *= depth, slice.count *= depth;
      return slices;
    };
    rows_travel = ranks->group(axes_).exchange(
        rows.local().pointer, elements_of(out ? here_ : there_), result.local().pointer,
        elements_of(out ? there_ : here_), elements, spec.dtype);
  }
  overlap_deferred_gradients();
  const ProfileScope scope(name_of(step.kind), step.bytes);  // what nothing hides
  rows_travel.wait();
  return result;
}

Tensor to_experts(const Tensor& rows, const std::shared_ptr<const RowExchange>& exchange) {
  if (exchange == nullptr) return rows;
  return recorded(rows, exchange->exchanged(rows, true),
                  [exchange](const Tensor& grad) { return from_experts(grad, exchange); });
}

Tensor from_experts(const Tensor& rows, const std::shared_ptr<const RowExchange>& exchange) {
  if (exchange == nullptr) return rows;
  return recorded(rows, exchange->exchanged(rows, false),
                  [exchange](const Tensor& grad) { return to_experts(grad, exchange); });
}

}  // namespace quintet
