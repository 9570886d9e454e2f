#pragma once
// A stack run over whole sequences: the encoder, and the prefix of a decoder-only network. Padding
// has been taken out; all items' tokens follow one another.

#include <functional>
#include <span>

#include "models/decoding/cpu/packed_network.h"

namespace quintet::decoding {

struct Sequences {
  std::vector<int32_t> tokens;       // [n]
  std::vector<int32_t> positions;    // [n] where each stood before padding was taken out
  std::vector<int64_t> limits;       // [n] how many tokens of its item it sees, from the first on
  std::vector<int64_t> begin = {0};  // [items + 1]

  int64_t items() const { return static_cast<int64_t>(begin.size()) - 1; }
  int64_t size() const { return begin.back(); }
};

/// Told of each token's key and value, [joined_kv] each; called from several threads at once.
using KeyValueSink = std::function<void(int64_t layer, int64_t item, int64_t index,
                                        const float* key, const float* value)>;

/// Output of the stack's layers before the final norm, [n, embed]. Throws kData for a token outside
/// the vocabulary. Ranks that hold the network together all call it for the same sequences; the sink is told of
/// this rank's heads.
std::vector<float> run_stack(const PackedNetwork& network, const PackedStack& stack,
                             const Sequences& sequences, const KeyValueSink& sink = nullptr);

/// Rows of a thread's block: enough to amortise reading the weights, few enough for its cache.
int64_t prefill_block_rows(int64_t rows, int64_t threads);

}  // namespace quintet::decoding
