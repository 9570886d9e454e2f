#pragma once
// Attention of generation on a GPU: one query a row, keys and values that stay where they were
// written.
//
//   DecodeCache            keys and values of one layer; token t of a sequence and head at
//                          sequence * sequence_stride + head * head_stride + t * token_stride
//   decode_cross_gpu       keys and values of an item are read once for all of its rows
//   decode_self_gpu        appends this step's key and value, then attends to the row's whole past,
//                          each token read from the sequence in which it was written: beams change
//                          slots without a copy
//   decode_paged_gpu       either, over a pool: every row, or few rows with the same past, has a list
//                          of the slots of its tokens; rows that rest cost nothing
//   store_paged_gpu        puts the keys and values of whole inputs into a pool
//
// A row is a sequence being written: item * decodes + decode. Logits are not scaled, as in T5;
// softmax in float32. Operands float32 or bfloat16, all alike, but caches that keep 8 bits (cache_type.h); head_dim at most 256 (bfloat16) or
// 128 (float32). All pointers are device memory, positions and lengths too, so that a step can be a
// graph. The same results every time: chunks of tokens are joined in order.

#include "kernels/decode_attention/decode_rows.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

void decode_cross_gpu(const DecodeCross& attention, Stream stream);
void decode_self_gpu(const DecodeSelf& attention, Stream stream);
void follow_sources_gpu(const FollowSources& follow, Stream stream);
void decode_paged_gpu(const DecodePaged& attention, Stream stream);
void store_paged_gpu(const StorePaged& store, Stream stream);

}  // namespace quintet::QT_GPU
