#pragma once
// For decoding during a run on a mesh: every rank decodes with the whole model, as one device would.
//
//   const WholeParameters whole(model.parameters());   // gathered; cut again when it goes

#include <vector>

#include "runtime/mesh/sharding.h"
#include "runtime/tensor/parameters.h"

namespace quintet {

/// Gathers every parameter to every rank (in its memory: all of the model) and makes nothing cut
/// for its lifetime. Without a mesh it does nothing. All ranks make one together.
class WholeParameters {
 public:
  explicit WholeParameters(Parameters& parameters);
  ~WholeParameters();
  WholeParameters(const WholeParameters&) = delete;
  WholeParameters& operator=(const WholeParameters&) = delete;

 private:
  Parameters& parameters_;
  std::vector<std::pair<Tensor, Tensor>> cut_;  // value and compute
  Sharding one_rank_{Axes{}, {}, {}};
  Sharding::Use nothing_cut_;
};

}  // namespace quintet
