#pragma once
// What the ranks of the data service tell each other, as bytes. Ranks run the same program on the
// same kind of machine: numbers are as they lie in memory.

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "data/batches/batches.h"
#include "data/reading/work_chunks.h"

namespace quintet::data {

/// A chunk's examples and its error, if it has one.
std::string to_wire(const WorkChunk& chunk);
/// The examples' provenance is `provenance`. Throws kPeer for bytes that to_wire did not make.
WorkChunk chunk_from_wire(std::string_view bytes, const Provenance& provenance);

/// An answer to a request for a batch.
struct Delivery {
  std::optional<Batch> batch;  // none: the end, or an error
  std::string position;        // after the batch
  std::exception_ptr error;
  int sender = 0;  // which of the data ranks made it
};
/// Of the batch, the rows of one of its shards.
std::string to_wire(const Delivery& delivery, const Shard& shard);
Delivery delivery_from_wire(std::string_view bytes);

/// Data rank `sender` waits for data rank `other` (-1: for none).
std::string to_wire(int sender, int other);
std::pair<int, int> waiting_from_wire(std::string_view bytes);

/// What a training rank begins with.
struct Start {
  int64_t seed = 0;
  std::string position;  // empty: at the beginning
  Shard shard;
  int64_t credits = 0;  // batches it has room for
};
std::string to_wire(const Start& start);
Start start_from_wire(std::string_view bytes);

}  // namespace quintet::data
