#pragma once
// The network as a TokenModel: encodes the inputs once, then turns one token a row into logits
// against a cache. Encoder-decoder, decoder-only and prefix LM.
//
//   TransformerDecoder decoder(network);
//   decoder.begin(encoder_tokens, batch, inputs_length, {.num_decodes = 4, .max_length = 128});
//   const Decodes out = beam_search(prompts, decoder, eos_id, {.num_decodes = 4});
//
// Cross-attention's keys and values are computed once an item and shared by its decodes;
// self-attention's are written once and never moved, beams find their history through a table of
// slots. Padding is not computed. One step is one parallel region on this process's OpenMP threads.

#include <memory>

#include "models/decoding/cpu/packed_network.h"
#include "models/decoding/cpu/self_cache.h"
#include "models/decoding/search/token_model.h"

namespace quintet::decoding {

class TransformerDecoder : public TokenModel {
 public:
  /// The network must outlive the decoder. Throws a usage error if its experts choose tokens.
  explicit TransformerDecoder(const PackedNetwork& network);
  ~TransformerDecoder() override;

  /// Encoder-decoder: encodes tokens [batch, length] (0 is padding, wherever it stands; an item of
  /// padding alone is read as one padding token, which is what T5X's mask amounts to). `mask`
  /// [batch, length]: 0 for the tokens that nobody sees, instead.
  void begin(std::span<const int32_t> tokens, int64_t batch, int64_t length,
             const CacheOptions& options, std::span<const int32_t> mask = {});
  /// Decoder only: fills the cache with positions [0, prefix[i]) of tokens [batch, length], all
  /// rows of an item sharing them; with `bidirectional`, prefix tokens see each other.
  void begin_prefix(std::span<const int32_t> tokens, int64_t batch, int64_t length,
                    std::span<const int32_t> prefix, bool bidirectional,
                    const CacheOptions& options);

  int64_t vocab_size() const override { return network_.spec().vocab_size; }
  /// Positions at or beyond max_length write nothing and see the whole cache without relative bias,
  /// as T5X's one-hot writes do.
  std::span<float> step(const StepInput& input) override;

  /// Encoder output of item i after its final norm, [tokens that are not padding, embed].
  std::span<const float> encoded(int64_t item) const;
  /// Of self-attention's and of cross-attention's keys and values.
  int64_t cache_bytes() const;
  /// Of these what a step of all rows reads that writes token `position` of each.
  int64_t read_bytes(int64_t position) const;

 private:
  int64_t cross_bytes() const;

  struct State;
  const PackedNetwork& network_;
  std::unique_ptr<State> state_;
  int64_t batch_ = 0;
  std::vector<float> logits_;  // [rows, vocab]
};

}  // namespace quintet::decoding
