#pragma once
// A stack run over whole sequences: the encoder, the prefix of a decoder-only network, a decoder that is given its
// targets. All items' tokens follow one another; padding has been taken out, or stands behind an item's tokens.

#include <functional>
#include <span>

#include "kernels/decode_attention/decode_attention.h"
#include "models/decoding/cpu/packed_network.h"

namespace quintet::decoding {

struct Sequences {
  std::vector<int32_t> tokens;       // [n]
  std::vector<int32_t> positions;    // [n] where each stood before padding was taken out
  std::vector<int64_t> limits;       // [n] how many tokens of its item it sees, from the first on
  std::vector<int64_t> begin = {0};  // [items + 1]
  /// [n], or empty: tokens to which T5X's masks allow no key, so that they see all with the same weight.
  std::vector<uint8_t> uniform;
  /// [n], or empty: tokens that enter blocks as zeros, but for parallel layers, and leave the stack so
  /// (LayerConfig::masks_padding).
  std::vector<uint8_t> masked;
  /// The tokens of a batch, with all its padding: experts serve as many as in training's evaluation.
  bool whole_batch = false;

  int64_t items() const { return static_cast<int64_t>(begin.size()) - 1; }
  int64_t size() const { return begin.back(); }
  int64_t length(int64_t item) const {
    return begin[static_cast<size_t>(item + 1)] - begin[static_cast<size_t>(item)];
  }
  bool is_uniform(int64_t token) const {
    return !uniform.empty() && uniform[static_cast<size_t>(token)] != 0;
  }
};

/// What the tokens of a decoder's items find in the encoder's output.
struct EncodedKeys {
  std::span<const SharedKeys> keys;  // [layers, items, this rank's heads]
  std::span<const int64_t>
      limits;  // [items] how many of its keys an item sees; 0: all, with the same weight
};

/// Told of each token's key and value, [joined_kv] each; called from several threads at once.
using KeyValueSink = std::function<void(int64_t layer, int64_t item, int64_t index,
                                        const float* key, const float* value)>;

/// Output of the stack's layers before the final norm, [n, embed]. Throws kData for a token outside
/// the vocabulary. Ranks that hold the network together all call it for the same sequences; the sink is told of
/// this rank's heads. `encoded`: of a stack with cross-attention. `routings`: gets what losses need of each layer
/// with experts of a whole batch.
std::vector<float> run_stack(const PackedNetwork& network, const PackedStack& stack,
                             const Sequences& sequences, const KeyValueSink& sink = nullptr,
                             const EncodedKeys& encoded = {},
                             std::vector<LayerRouting>* routings = nullptr);

/// Rows of a thread's block: enough to amortise reading the weights, few enough for its cache.
int64_t prefill_block_rows(int64_t rows, int64_t threads);

}  // namespace quintet::decoding
