#pragma once
// Collectives over ordinary memory, made of messages: every pair of ranks exchanges its blocks
// directly and reductions add blocks in the order of the ranks, so that the bits do not depend on
// what carries them. A GPU's data pass through ordinary memory.

#include <memory>

#include "runtime/mesh/collectives/collectives.h"
#include "runtime/mesh/collectives/transport.h"

namespace quintet {

/// A comm whose collectives run in a thread of its own, in the order in which they were started.
/// `device`: where the data lie.
std::unique_ptr<Comm> host_comm(std::unique_ptr<Transport> transport, Device& device);

}  // namespace quintet
