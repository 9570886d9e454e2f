#pragma once
// Elementwise reduction of blocks from several ranks.

#include <cstdint>

#include "runtime/base/dtype.h"
#include "runtime/mesh/collectives/collectives.h"

namespace quintet {

/// to[i] = blocks[0][i] (+ or max) blocks[1][i] ..., from the left, in float32 for the 16-bit types
/// and in the type itself for others. `to` may be one of the blocks. Throws Bug for booleans.
void reduce_blocks(const std::vector<const void*>& blocks, void* to, int64_t count, DType dtype,
                   Reduction how);

}  // namespace quintet
