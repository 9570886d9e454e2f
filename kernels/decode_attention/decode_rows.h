#pragma once
// What the GPU's attention of generation takes; meaning and limits: decode_attention_gpu.h.

#include <cstdint>

#include "kernels/decode_attention/cache_type.h"
#include "kernels/kernel.h"

namespace quintet {

struct DecodeCache {
  void *keys = nullptr, *values = nullptr;
  int64_t sequence_stride = 0, head_stride = 0,
          token_stride = 0;  // in elements; head 0: all share one head's
  int64_t max_length = 0;    // tokens of a sequence
  // In 8 bits keys and values are bytes, strides whole vectors of head_dim, and vector n of the keys has scale n.
  CacheType type = CacheType::native;
  float *key_scales = nullptr, *value_scales = nullptr;
};

/// What the rows ask. Row r's query starts at r * stride; heads lie behind each other.
struct DecodeRows {
  DType dtype = DType::bf16;
  int64_t items = 0, decodes = 1, heads = 0, head_dim = 0;
  const void* query = nullptr;
  void* out = nullptr;
  int64_t query_stride = 0, out_stride = 0;  // in elements
};

/// Sequences are items. lengths [items]: tokens of the item, 1 to max_length. The cache and lengths are read before the
/// kernels before this one have ended: since they were written, a kernel must have begun that was not launched early
/// (kernels/simt/dependent.cuh), as the lookup of embeddings at the beginning of every step is.
struct DecodeCross {
  DecodeRows rows;
  DecodeCache cache;
  const int32_t* lengths = nullptr;
};

/// Sequences are rows. positions [rows]: where the new token stands; beyond max_length nothing is
/// written, and the whole cache is seen without bias, as T5X's one-hot writes do. sources [rows,
/// max_length]: the decode of the item in whose sequence each earlier token was written. bias [heads,
/// biases] float32: what is added for a key 0, 1, ... tokens back; those farther than the last get
/// the last; or null. Positions, sources and the cache are read as early as DecodeCross says, key, value, query and bias
/// are not.
struct DecodeSelf {
  DecodeRows rows;
  DecodeCache cache;
  const void *key = nullptr, *value = nullptr;  // of the new token, as the query
  int64_t key_stride = 0;                       // of both, in elements
  const int32_t* positions = nullptr;
  const uint16_t* sources = nullptr;
  const float* bias = nullptr;
  int64_t biases = 0;
};

/// Lets each row of a step continue the history of another row of its item. sources [rows,
/// max_length]
/// -> next [rows, max_length]: parents [rows] rows, or null: their own; the new token
/// is in the row's own sequence.
struct FollowSources {
  int64_t items = 0, decodes = 1, max_length = 0;
  const int32_t *positions = nullptr, *parents = nullptr;
  const uint16_t* sources = nullptr;
  uint16_t* next = nullptr;
};

/// The longest run of rows that one group may have.
inline constexpr int64_t kMostGroupRows = 4;

/// Neighbouring rows that attend to the same tokens, each found at a slot of a pool. `rows` 0: a
/// group that rests; nothing is written for it.
struct PagedGroup {
  const int32_t* slots = nullptr;  // [length], device memory
  int32_t length = 0, row = 0, rows = 0;
};

/// rows: `items` groups, resting ones too, of at most `decodes` rows, which may be up to
/// kMostGroupRows; heads of a row lie behind each other. pool: a slot of `cache` is what a token of
/// sequence 0 is elsewhere. key, value: of each row's new token, written to the last of its slots first
/// (groups of one row then), or null. bias as in DecodeSelf, or null.
struct DecodePaged {
  DecodeRows rows;
  DecodeCache pool;
  const PagedGroup* groups = nullptr;  // [rows.items], device memory
  const void *key = nullptr, *value = nullptr;
  int64_t key_stride = 0;  // of both, in elements
  const float* bias = nullptr;
  int64_t biases = 0;
};

/// Writes keys and values of tokens, [heads, head_dim] each, to their slots in a pool.
struct StorePaged {
  DType dtype = DType::bf16;
  DecodeCache pool;
  int64_t tokens = 0, heads = 0, head_dim = 0;
  const void *keys = nullptr, *values = nullptr;
  int64_t stride = 0;              // from one token to the next, in elements
  const int32_t* slots = nullptr;  // [tokens], device memory; -1: of none
};

}  // namespace quintet
