#pragma once
// What the GPU's attention of generation takes; meaning and limits: decode_attention_gpu.h.

#include <cstdint>

#include "kernels/kernel.h"

namespace quintet {

struct DecodeCache {
  void *keys = nullptr, *values = nullptr;
  int64_t slot_stride = 0, head_stride = 0, token_stride = 0;  // in elements
  int64_t max_length = 0;                                      // tokens a slot has room for
};

/// What the rows ask. Row r's query starts at r * stride; heads lie behind each other.
struct DecodeRows {
  DType dtype = DType::bf16;
  int64_t items = 0, decodes = 1, heads = 0, head_dim = 0;
  const void* query = nullptr;
  void* out = nullptr;
  int64_t query_stride = 0, out_stride = 0;  // in elements
};

/// Slots are items. lengths [items]: tokens of the item, 1 to max_length.
struct DecodeCross {
  DecodeRows rows;
  DecodeCache cache;
  const int32_t* lengths = nullptr;
};

/// Slots are rows. positions [rows]: where the new token stands; beyond max_length nothing is
/// written, and the whole cache is seen without bias, as T5X's one-hot writes do. sources [rows,
/// max_length]: the decode of the item in whose slot each earlier token was written. bias [heads,
/// biases] float32: what is added for a key 0, 1, ... tokens back; those farther than the last get
/// the last; or null.
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
/// -> next [rows, max_length]: parents [rows] rows, or null: their own; the place of the new token
/// becomes the row's own slot.
struct FollowSources {
  int64_t items = 0, decodes = 1, max_length = 0;
  const int32_t *positions = nullptr, *parents = nullptr;
  const uint16_t* sources = nullptr;
  uint16_t* next = nullptr;
};

}  // namespace quintet
