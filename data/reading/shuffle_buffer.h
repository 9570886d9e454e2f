#pragma once
// Shuffling after preprocessing, so that the examples that preprocessors make of one (the pieces of a document) do not
// follow one another: seqio's shuffle_buffer_size.
//
//   stream = shuffle_stream(std::move(stream), 1000, key);
//
// A buffer gives one of its examples and takes the next of the input in its place, as tf.data does. Draw d of round r
// is a function of (key, r, d). A round ends after kRoundOfBuffers buffers of examples: the next round's take the
// places that become free. So a position is the place of the round's first example and two integers, and restoring it
// reads at most kRoundOfBuffers + 1 buffers of examples again.

#include "data/examples/dataset.h"

namespace quintet::data {

constexpr int64_t kRoundOfBuffers = 4;

/// The examples of `input` in a random order; `size` of them, at least 1, are held. 1: the order of the input.
StreamPtr shuffle_stream(StreamPtr input, int64_t size, Key key);

}  // namespace quintet::data
