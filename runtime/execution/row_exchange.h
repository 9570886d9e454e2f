#pragma once
// Packed rows (kernels/moe/dispatch.h) on their way to the ranks that hold their experts, and back:
// uneven all-to-alls over the mesh axes that shard experts. Which those are the rules say; every rank
// works on the rows that all ranks along them have for its experts.
//
//   const auto exchange = RowExchange::of(offsets, choices, experts, slots);
//   Tensor there = to_experts(rows, exchange);   // [blocks, n, e], n sharded by expert
//   ... experts_in(there, exchange->offsets(), ...) ...
//   Tensor back = from_experts(there, exchange);
//
// The counts are exchanged first, once a routing. Arriving rows are sorted by expert, those of one
// expert by the rank they come from: the order of the batch. There is room for the most rows that a
// capacity lets come; without one for as many as the busiest rank gets, at least an even share, which
// it is in a simulated step. So that such a step sends what a step on ranks does, traffic is counted
// as of experts that are all chosen alike (Group::exchange).

#include <memory>

#include "runtime/mesh/collectives/collectives.h"
#include "runtime/mesh/layout.h"
#include "runtime/tensor/tensor.h"

namespace quintet {

class RowExchange {
 public:
  /// offsets [b, s] and choices [b, n] of a routing among `experts`, each of which serves at most
  /// `slots` rows of a rank (0: all it has). nullptr where rows stay: the mesh does not shard experts, or
  /// not the batch along with them. Called by all ranks.
  static std::shared_ptr<const RowExchange> of(const Tensor& offsets, const Tensor& choices,
                                               int64_t experts, int64_t slots);

  /// [blocks, s] of the rows where they arrive; this rank's experts and none.
  const Tensor& offsets() const { return offsets_; }

 private:
  RowExchange() = default;
  friend Tensor to_experts(const Tensor&, const std::shared_ptr<const RowExchange>&);
  friend Tensor from_experts(const Tensor&, const std::shared_ptr<const RowExchange>&);

  /// How many rows arrive; fills offsets_ and the slices.
  int64_t count(const Tensor& offsets, int64_t experts);
  int64_t capacity_for(int64_t arrived) const;  // the same on all ranks
  Tensor exchanged(const Tensor& rows, bool there) const;

  MeshAxes axes_;         // that shard experts
  Tensor packed_;         // choices: the batch, the rows and how they are sharded before they leave
  int64_t capacity_ = 0;  // rows of a rank, there
  int64_t ranks_ = 1;     // along axes_
  Slices here_, there_;   // in rows: what goes to whom and what comes from whom
  Tensor offsets_;
};

/// rows [b, n, e] -> [blocks, n, e] at their experts. The gradient comes back.
Tensor to_experts(const Tensor& rows, const std::shared_ptr<const RowExchange>& exchange);
/// The other way. Rows in no use are anything.
Tensor from_experts(const Tensor& rows, const std::shared_ptr<const RowExchange>& exchange);

}  // namespace quintet
