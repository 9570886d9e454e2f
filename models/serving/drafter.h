#pragma once
// Draft tokens: guesses of what follows a sequence. The next step reads them beside it, so that one pass over the weights
// may answer several tokens (speculative decoding, arXiv:2211.17192); what a search would not have chosen is dropped,
// and no answer changes.
//
//   const auto drafter = prompt_lookup(decoder_only);   // or network_drafter(..)
//   const auto states = drafter->start({{&inputs, max_length}});
//   drafter->draft(requests);                           // sets requests[i].drafts

#include "models/serving/served_network.h"

namespace quintet::serving {

/// What a drafter keeps of a job.
class DraftState {
 public:
  virtual ~DraftState() = default;
};

struct DraftJob {
  const Tokens* inputs = nullptr;
  int64_t max_length = 0;  // as Job's
};

struct DraftRequest {
  DraftState* state = nullptr;
  std::span<const int32_t> tokens = {};  // DraftedSequence's, which only grows
  int64_t most = 0;                      // drafts; at least one
  Tokens drafts = {};                    // what it gets
};

/// Used by one thread.
class Drafter {
 public:
  virtual ~Drafter() = default;
  /// Null for a job that it has no memory for, which goes on without drafts.
  virtual std::vector<std::unique_ptr<DraftState>> start(std::span<const DraftJob> jobs) = 0;
  virtual void draft(std::span<DraftRequest> requests) = 0;
  /// Bytes reserved for caches of its own.
  virtual int64_t cache_bytes() const { return 0; }
};

/// Guesses that what followed the last tokens (3, or as few as occur) where they first occurred in inputs or answer
/// follows again: for answers that repeat their inputs.
std::unique_ptr<Drafter> prompt_lookup(bool decoder_only);

/// Guesses what `network` would answer greedily: a smaller model of the same vocabulary and kind. It was made with
/// `options`, whose memory_bytes its caches may take.
std::unique_ptr<Drafter> network_drafter(std::unique_ptr<ServedNetwork> network,
                                         const EngineOptions& options);

}  // namespace quintet::serving
