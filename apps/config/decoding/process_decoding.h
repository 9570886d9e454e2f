#pragma once
// Decode functions and their callbacks that are the user's own processes (data/workers/workers.h; python/quintet_worker.py
// is the other end). Logits are float32, little-endian, [rows, vocab], in the bytes that follow a line.
//
//   decode_fn          {"decode": {"inputs": [[0, 5, ..], ..], "eos_id": 1, "num_decodes": 2, "seed": 1, "vocab_size": 384,
//                       "initial_index": null}}
//      any number of   {"step": {"rows": [0, 1], "tokens": [0, 0], "positions": [0, 0], "sources": [0, 1]}}
//      each answered   {"logits": [2, 384]} and 2 * 384 * 4 bytes
//      then            {"decodes": [[[5, 1], ..], ..], "scores": [[-0.5, ..], ..]}
//   state_callback_fn  {"state_callback": {"step": 0, "cur_index": [..], "sequences": [[..], ..], "cur_token": [..],
//                       "ended": [..], "log_prob": [..]}}  ->  {"state": {..}}
//   logit_callback_fn  {"logit_callback": {..}, "logits": [2, 384]} and bytes  ->  {"logits": [2, 384]} and bytes

#include "data/workers/worker_functions.h"
#include "models/decoding/search/decode_fn.h"

namespace quintet {

/// Throws kData for steps of rows, tokens and positions that there are not, and decodes of another shape.
decoding::OwnDecodeFn process_decode_fn(data::WorkersPtr workers, int64_t num_decodes);
/// Rows stay where they are: cur_index is not the function's to change.
std::function<void(decoding::SamplingState&)> process_state_callback(data::WorkersPtr workers,
                                                                     int64_t vocab_size);
std::function<void(std::span<float>, const decoding::SamplingState&)> process_logit_callback(
    data::WorkersPtr workers);

}  // namespace quintet
