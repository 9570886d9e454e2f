#pragma once
// How ranks divide inference: every `model_ranks` neighbours hold a model together (tensor parallelism), and
// these groups share the examples.
//
//   const InferenceRanks division(ranks, config.partitioner.num_partitions);
//   weights.ranks = division.group();           // to where the network is packed
//   if (batch % division.groups() == division.group_index()) answer(batch);    // all of a group do
//   texts = division.gather(own);               // of every group, once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/process/ranks.h"
#include "data/examples/peers.h"
#include "runtime/mesh/shared_memory_group.h"

namespace quintet {

class InferenceRanks {
 public:
  /// All ranks make one together. Throws usage errors if model_ranks does not divide the ranks, or ranks of a group
  /// are on different hosts.
  InferenceRanks(const Ranks& ranks, int64_t model_ranks);

  /// Null: a rank has the model alone.
  SharedMemoryGroup* group() const { return group_.get(); }
  int group_index() const { return ranks_.rank() / size_; }
  int groups() const { return ranks_.size() / size_; }
  /// The first rank's text of each group, in order; all ranks call it.
  std::vector<std::string> gather(const std::string& text) const;
  /// The groups, as those that share examples.
  data::Peers peers() const;
  /// Throws a usage error if `needed`, and ranks hold a model together: what is computed of a whole one, `what`, then
  /// cannot be.
  void check_whole(bool needed, std::string_view what) const;

 private:
  const Ranks& ranks_;
  const int size_;  // of a group
  std::unique_ptr<SharedMemoryGroup> group_;
};

/// A configuration's num_partitions for these ranks: one process has the model alone, whatever it says, with a
/// warning.
int64_t model_ranks_of(int64_t num_partitions, const Ranks& ranks);

}  // namespace quintet
