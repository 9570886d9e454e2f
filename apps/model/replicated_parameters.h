#pragma once
// For decoding during a run on a mesh: every rank decodes with all parameters, as one device would.
//
//   const ReplicatedParameters replicated(model.parameters());   // gathered; sharded again when it goes

#include <array>
#include <vector>

#include "runtime/mesh/sharding.h"
#include "runtime/tensor/parameters.h"

namespace quintet {

/// All of an array on every rank; nothing of an absent one. All ranks call it together.
Tensor replicated(const Tensor& x);

/// Gathers every parameter to every rank (in its memory: all of the model) and makes nothing sharded
/// for its lifetime. Without a mesh it does nothing. All ranks make one together.
class ReplicatedParameters {
 public:
  explicit ReplicatedParameters(Parameters& parameters);
  ~ReplicatedParameters();
  ReplicatedParameters(const ReplicatedParameters&) = delete;
  ReplicatedParameters& operator=(const ReplicatedParameters&) = delete;

 private:
  Parameters& parameters_;
  std::vector<std::array<Tensor, 3>> shards_;  // value, compute, scales
  Sharding one_rank_{Axes{}, {}, {}};
  Sharding::Use use_one_rank_;
};

}  // namespace quintet
