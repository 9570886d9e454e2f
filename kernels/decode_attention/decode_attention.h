#pragma once
// Attention of generation: few queries, keys and values that stay where they were written. One call
// handles one head of one item (shared keys) or of one row (cache) on the calling thread; logits
// are not scaled, as in T5. Float32, keys and values in 8 bits where a cache has them so (cache_type.h); softmax in
// float32. Highway, run-time dispatch.
//
//   SharedKeys      keys and values that all rows of an item read: cross-attention, the encoder, a prefix
//   CachedHead      keys and values of a sequence that grows by a token a step. Nothing is ever moved:
//                   a list says at which slot each earlier token was written, so that beams change
//                   slots, and sequences lie scattered over pages, without a copy.
//
// head_dim is padded to depth_of(head_dim), a whole number of vectors; the padding is zero.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/decode_attention/cache_type.h"

namespace quintet {

/// head_dim rounded up to whole vectors of this machine; lengths are padded to the same unit.
int64_t padded_to_vectors(int64_t n);

/// One head of one item. Keys are stored by column so that scores of neighbouring tokens are
/// neighbours. Elements are floats, int8_t or float8.
struct SharedKeys {
  CacheType type = CacheType::native;
  void* keys = nullptr;           // [head_dim, stride]
  void* values = nullptr;         // [length, padded_to_vectors(head_dim)]
  float* key_scales = nullptr;    // [stride], in 8 bits
  float* value_scales = nullptr;  // [stride], likewise
  int64_t length = 0;
  int64_t stride = 0;  // padded_to_vectors(length)

  /// What one takes of memory.
  static int64_t floats(int64_t length, int64_t head_dim, CacheType type = CacheType::native);
  /// Lays all out in `memory`, floats() of them.
  static SharedKeys at(float* memory, int64_t length, int64_t head_dim,
                       CacheType type = CacheType::native);
  /// Where they begin, floats() of them.
  const void* memory() const { return type == CacheType::native ? keys : key_scales; }
  /// Writes token t: key and value are [head_dim].
  void set(int64_t t, const float* key, const float* value, int64_t head_dim) const;
};

/// What one row asks of SharedKeys.
struct SharedQuery {
  const float* query = nullptr;  // [head_dim]
  float* out = nullptr;          // [head_dim]
  int64_t limit = 0;             // attends to tokens [0, limit), limit >= 1
  const float* bias = nullptr;   // [limit] added to the logits, or null
};

/// out = softmax(query keys^T + bias) values for each query.
void attend_shared(std::span<const SharedQuery> queries, const SharedKeys& keys, int64_t head_dim,
                   std::vector<float>& scratch);

/// What the key, and the value, of a token's head take of a growing cache: padded_to_vectors(head_dim) elements, before
/// them the scale if they are in 8 bits.
int64_t cached_floats(int64_t head_dim, CacheType type);

/// One head of one layer of a growing cache: where its key and value, cached_floats() each, stand from a token's slot
/// on, in floats. Slots of floats are aligned to vectors.
struct CachedHead {
  int64_t keys = 0, values = 0;
  int64_t next = 0;  // from here to the next head, which is fetched meanwhile
  CacheType type = CacheType::native;
};

/// out [head_dim] = softmax(query keys^T + bias) values over the tokens at `slots`; bias
/// [slots] or null.
void attend_cache(const float* query, float* out, CachedHead head, std::span<float* const> slots,
                  const float* bias, int64_t head_dim, std::vector<float>& scratch);

/// Writes a key and a value, [head_dim] each, to the token at `slot`, with zero padding.
void append_to_cache(CachedHead head, float* slot, const float* key, const float* value,
                     int64_t head_dim);

}  // namespace quintet
