#pragma once
// One step of the decoder: a token a row into logits for the next, for rows whose pasts lie
// anywhere. What a row gets does not depend on which other rows are there, bit for bit: every
// product, norm and softmax adds up a row's numbers in an order of its own, whatever the number of
// rows or threads.
//
//   DecoderStep step{.layout = cache.layout(), .bias = &bias, .rows = rows, .groups = groups};
//   run_step(network, step, logits);                       // [rows, vocab]

#include <cstdint>
#include <span>

#include "kernels/decode_attention/decode_attention.h"
#include "models/decoding/cpu/layer_parts.h"

namespace quintet::decoding {

/// How far apart a token's keys and values stand in its slot, in floats.
struct CacheLayout {
  int64_t layer = 0, head = 0, values = 0;
  CacheType type = CacheType::native;

  CachedHead at(int64_t l, int64_t h) const {
    const int64_t keys = l * layer + h * head;
    return {.keys = keys, .values = keys + values, .next = head, .type = type};
  }
};

struct StepRow {
  int32_t token = 0, position = 0;
  float* slot = nullptr;              // of the token; null: it is not kept, and there is no bias
  std::span<float* const> past = {};  // slots it attends to, its own the last
};

/// Neighbouring rows with the same inputs.
struct StepGroup {
  int64_t begin = 0, end = 0;
  const SharedKeys* cross = nullptr;  // of layer 0, head 0; decoder only: null
  int64_t cross_layer = 0;            // from one layer's heads to the next
};

struct DecoderStep {
  CacheLayout layout;
  const BiasDiagonals* bias = nullptr;  // as long as the highest position of a row that has a slot
  std::span<const StepRow> rows;
  std::span<const StepGroup> groups;
  bool has_drafts = false;  // rows attend to slots of other rows of this step
};

/// Throws kData for a token outside the vocabulary. One parallel region on this process's OpenMP
/// threads. Ranks that hold the network together all call it for the same rows, each with its caches, and all
/// have the logits.
void run_step(const PackedNetwork& network, const DecoderStep& step, float* logits);

}  // namespace quintet::decoding
