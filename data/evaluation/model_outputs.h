#pragma once
// What a model made of the batches of an evaluation set, which ranks may have shared among them.
//
//   ModelOutputs own;                            // of batches peers.rank, peers.rank + peers.size, ..
//   own.add(predictions), own.add(scores);
//   const ModelOutputs all = gather(own, peers); // of every batch, in order; the same on each rank

#include "data/evaluation/evaluator.h"

namespace quintet::data {

/// By batch.
struct ModelOutputs {
  std::vector<Predictions> predictions;
  std::vector<Scores> scores;
};

/// Called by all ranks, each of which has had every peers.size-th batch from its own rank on.
ModelOutputs gather(ModelOutputs own, const Peers& peers);

}  // namespace quintet::data
